/*
 * fieldgate's bench for QEMU's raspi3b: GPIO inputs, pulls, edge detection and interrupts (QEMU's own model has
 * outputs only), pulses, a DHT11 and a DS18B20 on any pin, and an ADS1115 and an SCD4x for the I2C bus.
 *
 * Written from the data sheets: BCM2835 ARM Peripherals (chapter 6), ADS1115 (SBAS444), SCD4x (Sensirion), DHT11,
 * DS18B20.
 * Built into QEMU by `pi build`. Everything runs under QEMU's global lock; times are QEMU_CLOCK_VIRTUAL's, in ns.
 *
 * Its handles, for QMP's qom-set and qom-get, are string properties of the GPIO controller:
 *   level  "PIN 0|1|-1"                      drive a pin from outside; -1 lets go
 *   pulse  "PIN LOW_NS HIGH_NS COUNT"        from a high level; COUNT 0: until `level`. Read: "PIN LEFT ..."
 *   dht    "PIN FRAME_HEX"                   a DHT11 sends this 5-byte frame; "PIN -": no sensor
 *   wire   "PIN ID_HEX SIXTEENTHS"           a DS18B20: its 48-bit serial number, and 1/16 °C; "PIN -": none
 *   pins   read only: per pin "FSEL:LEVEL:PULL:DRIVEN:EVENTS", PULL one of n u d
 */
#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "qemu/module.h"
#include "qemu/host-utils.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qom/object.h"
#include "hw/irq.h"
#include "hw/i2c/i2c.h"
#include "hw/gpio/bcm2835_gpio.h"
#include "hw/intc/bcm2835_ic.h"
#include "system/reset.h"

#define PINS 54
#define ALL_PINS ((1ull << PINS) - 1)
#define FIRST_IRQ 49 /* and the three after it, among the GPU's interrupts */

enum { FSEL0 = 0x00, FSEL5 = 0x14, SET0 = 0x1c, CLR0 = 0x28, LEV0 = 0x34, EDS0 = 0x40, PUD = 0x94, PUDCLK0 = 0x98 };
enum { RISING, FALLING, HIGH, LOW, ASYNC_RISING, ASYNC_FALLING, DETECTORS };
static const hwaddr detector_at[DETECTORS] = { 0x4c, 0x58, 0x64, 0x70, 0x7c, 0x88 };

/*
 * A DS18B20, alone on its bus, and lenient: a guest that the host pauses in the middle of a slot makes each of its
 * lows too long, never too short. So it pulls the line low (holds) until the guest has looked once, takes a reset only
 * where one may be, ignores bits whose value it knows, and takes a command for the nearest that there is.
 */
typedef struct Wire {
    enum { IDLE, ROM_COMMAND, MATCH, SEARCH, COMMAND, SEND, RECEIVE } state;
    bool low, holds;
    int64_t low_since, idle_since;
    int at;                             /* bits so far */
    int16_t air;                        /* what the next conversion finds, 1/16 °C */
    uint8_t rom[8], scratch[9], byte;
    const uint8_t *sent;
    int bits;
} Wire;

/* What is wired to a pin. next is when its level changes next, 0 if it doesn't. */
typedef struct Source {
    enum { NOTHING, STEADY, PULSES, DHT, WIRE } kind;
    bool level;
    int64_t next;
    int64_t length[2];                  /* PULSES: how long it is low, high */
    uint64_t left, events;              /* edges to come; edges that the guest's detectors have seen */
    bool endless;
    uint8_t frame[5], converted[5];     /* DHT: what it measures now; what its last conversion found */
    int64_t low_since;                  /* DHT: the guest's start signal */
    int64_t edge[90];                   /* DHT: the answer's level changes */
    int at, edges;
    Wire wire;
} Source;

static struct {
    BCM2835GpioState *gpio;
    MemoryRegionOps ops;
    const MemoryRegionOps *original;
    Source source[PINS];
    uint64_t out, level, pull_up, pull_down, events, detect[DETECTORS];
    uint32_t pud;
    qemu_irq irq[4];
    QEMUTimer *timer;
} bench;

static int64_t now_ns(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static bool is_output(int pin)
{
    return bench.gpio->fsel[pin] == 1;
}

static uint64_t detected_pins(void)
{
    uint64_t any = 0;
    for (int k = 0; k < DETECTORS; k++) {
        any |= bench.detect[k];
    }
    return any;
}

/* The pins' levels now: the guest's, else the outside's, else the pull's; a floating pin reads low. */
static void settle(void)
{
    uint64_t level = 0;
    for (int pin = 0; pin < PINS; pin++) {
        uint64_t bit = 1ull << pin;
        const Source *s = &bench.source[pin];
        bool high = is_output(pin) ? !!(bench.out & bit) : s->kind ? s->level : !!(bench.pull_up & bit);
        level |= high ? bit : 0;
    }
    uint64_t rise = level & ~bench.level, fall = bench.level & ~level;
    uint64_t seen = (rise & (bench.detect[RISING] | bench.detect[ASYNC_RISING]))
                    | (fall & (bench.detect[FALLING] | bench.detect[ASYNC_FALLING]));
    for (int pin = 0; pin < PINS; pin++) {
        bench.source[pin].events += seen >> pin & 1;
    }
    bench.events |= seen | (level & bench.detect[HIGH]) | (~level & bench.detect[LOW] & ALL_PINS);
    bench.level = level;
    bench.gpio->lev0 = level;
    bench.gpio->lev1 = level >> 32;
    if (bench.irq[0]) {
        qemu_set_irq(bench.irq[0], !!(bench.events & 0x0000000fffffffull));
        qemu_set_irq(bench.irq[1], !!(bench.events & 0x003ffff0000000ull));
        qemu_set_irq(bench.irq[2], !!(bench.events & 0x3fc00000000000ull));
        qemu_set_irq(bench.irq[3], !!bench.events);
    }
}

/*
 * A pulse's next edge waits until the guest's kernel has taken the one before, and a late one delays the rest:
 * under load the frequency falls, but none is lost, whatever the host does. With -icount there is no lateness.
 */
static void pulse_edge(Source *s, uint64_t bit, int64_t now)
{
    if (bench.events & bit & detected_pins()) {
        s->next = now + s->length[s->level] / 8 + 1000;
        return;
    }
    s->level = !s->level;
    if (!s->endless && --s->left == 0) {
        s->next = 0;
        return;
    }
    s->next += s->length[s->level];
    if (s->next < now + s->length[s->level] / 2) {
        s->next = now + s->length[s->level] / 2;
    }
}

/* Let the sources do all that is due by now, in its order. */
static void advance(int64_t now)
{
    for (;;) {
        int first = -1;
        for (int pin = 0; pin < PINS; pin++) {
            int64_t next = bench.source[pin].next;
            if (next && (first < 0 || next < bench.source[first].next)) {
                first = pin;
            }
        }
        if (first < 0) {
            timer_del(bench.timer);
            return;
        }
        Source *s = &bench.source[first];
        if (s->next > now) {
            timer_mod(bench.timer, s->next);
            return;
        }
        if (s->kind == PULSES) {
            pulse_edge(s, 1ull << first, now);
        } else {
            s->level = !s->level;
            s->next = ++s->at < s->edges ? s->edge[s->at] : 0;
        }
        settle();
    }
}

static void timer_due(void *opaque)
{
    advance(now_ns());
}

/* A DHT11's answer to a start signal that ends now: the conversion that the request before began. */
static void dht_answer(Source *s, int64_t now)
{
    int64_t t = now + 30000;
    s->edges = s->at = 0;
    s->edge[s->edges++] = t;
    s->edge[s->edges++] = t += 80000;
    s->edge[s->edges++] = t += 80000;
    for (int bit = 0; bit < 40; bit++) {
        s->edge[s->edges++] = t += 50000;
        s->edge[s->edges++] = t += s->converted[bit / 8] >> (7 - bit % 8) & 1 ? 70000 : 26000;
    }
    s->edge[s->edges++] = t += 50000;
    s->level = true;
    s->next = s->edge[0];
    memcpy(s->converted, s->frame, sizeof(s->frame));
}

/* A DHT11 asks for a low of 18 ms or more; take 10, as it does in practice. */
static void dht_listen(int64_t now)
{
    for (int pin = 0; pin < PINS; pin++) {
        Source *s = &bench.source[pin];
        if (s->kind != DHT) {
            continue;
        }
        bool low = is_output(pin) && !(bench.out >> pin & 1);
        if (low && !s->low_since) {
            s->low_since = now;
        } else if (!low && s->low_since) {
            if (now - s->low_since >= 10000000) {
                dht_answer(s, now);
            }
            s->low_since = 0;
        }
    }
}

/* ---- 1-Wire ---- */
static uint8_t wire_crc(const uint8_t *bytes, int count)
{
    uint8_t crc = 0;
    for (int k = 0; k < count * 8; k++) {
        bool mix = (crc ^ bytes[k / 8] >> k % 8) & 1;
        crc = crc >> 1 ^ (mix ? 0x8c : 0);
    }
    return crc;
}

static void wire_scratch(Wire *w, int16_t sixteenths)
{
    int16_t steps = sixteenths >> (3 - (w->scratch[4] >> 5 & 3)) << (3 - (w->scratch[4] >> 5 & 3));
    w->scratch[0] = steps;
    w->scratch[1] = steps >> 8;
    w->scratch[8] = wire_crc(w->scratch, 8);
}

static void wire_go(Wire *w, int state, const uint8_t *sent, int bits)
{
    w->state = state;
    w->at = 0;
    w->sent = sent;
    w->bits = bits;
}

/* A 1 may have come as a 0, not the other way round. */
static uint8_t wire_meant(uint8_t byte, const uint8_t *known, int count)
{
    int best = -1;
    for (int k = 0; k < count; k++) {
        if (!(byte & ~known[k]) && (best < 0 || ctpop8(known[k] & ~byte) < ctpop8(known[best] & ~byte))) {
            best = k;
        }
    }
    return best < 0 ? byte : known[best];
}

static void wire_rom_command(Wire *w)
{
    static const uint8_t known[] = { 0x33, 0x55, 0xcc, 0xf0, 0xec };
    switch (wire_meant(w->byte, known, sizeof(known))) {
    case 0x33:
        wire_go(w, SEND, w->rom, 64);
        break;
    case 0x55:
        wire_go(w, MATCH, w->rom, 64);
        break;
    case 0xcc:
        wire_go(w, COMMAND, NULL, 8);
        break;
    case 0xf0:
        wire_go(w, SEARCH, w->rom, 64 * 3);
        break;
    default:
        wire_go(w, IDLE, NULL, 0);
    }
}

static void wire_command(Wire *w)
{
    static const uint8_t known[] = { 0x44, 0xbe, 0x4e, 0xb4, 0x48, 0xb8 };
    switch (wire_meant(w->byte, known, sizeof(known))) {
    case 0x44: /* convert; done at once */
        wire_scratch(w, w->air);
        wire_go(w, IDLE, NULL, 0);
        break;
    case 0xbe:
        wire_go(w, SEND, w->scratch, 72);
        break;
    case 0x4e: /* alarms and resolution */
        wire_go(w, RECEIVE, NULL, 24);
        break;
    default: /* 0xb4: the line stays high: externally powered */
        wire_go(w, IDLE, NULL, 0);
    }
}

/* Does it send in this slot? A search's slots are: a bit, its complement, the master's choice. */
static bool wire_sends(const Wire *w)
{
    return w->state == SEND || (w->state == SEARCH && w->at % 3 < 2);
}

static bool wire_bit(const Wire *w)
{
    int k = w->state == SEARCH ? w->at / 3 : w->at;
    return (w->sent[k / 8] >> k % 8 & 1) != (w->state == SEARCH && w->at % 3 == 1);
}

/* The end of a slot in which the master sent a bit, or took one of ours. */
static void wire_slot(Wire *w, bool bit)
{
    if (w->state == IDLE) {
        return;
    }
    w->byte = w->byte >> 1 | bit << 7;
    w->at++;
    if (w->state == RECEIVE && w->at % 8 == 0) {
        w->scratch[1 + w->at / 8] = w->at == 24 ? (w->byte & 0x60) | 0x1f : w->byte;
        w->scratch[8] = wire_crc(w->scratch, 8);
    }
    if (w->at < w->bits) {
        return;
    }
    if (w->state == ROM_COMMAND) {
        wire_rom_command(w);
    } else if (w->state == COMMAND) {
        wire_command(w);
    } else if (w->state == MATCH || w->state == SEARCH) {
        wire_go(w, COMMAND, NULL, 8);
    } else {
        wire_go(w, IDLE, NULL, 0);
    }
}

static void wire_listen(int64_t now)
{
    for (int pin = 0; pin < PINS; pin++) {
        Source *s = &bench.source[pin];
        Wire *w = &s->wire;
        bool low = is_output(pin) && !(bench.out >> pin & 1);
        if (s->kind != WIRE || low == w->low) {
            continue;
        }
        w->low = low;
        bool anew = w->state == IDLE || ((w->state == ROM_COMMAND || w->state == COMMAND) && !w->at)
                    || w->low_since - w->idle_since > 100000000;
        if (low) {
            w->low_since = now;
            w->holds = wire_sends(w) && !wire_bit(w);
        } else if (now - w->low_since >= 450000 && anew) {
            wire_go(w, ROM_COMMAND, NULL, 8);
            w->holds = true; /* it is present */
        } else {
            wire_slot(w, now - w->low_since < 55000); /* the guest's 0 is 60 µs or more */
        }
        w->idle_since = low ? w->idle_since : now;
        s->level = !w->holds;
    }
}

/* The guest has looked at these pins. */
static void wire_sampled(uint64_t pins)
{
    for (int pin = 0; pin < PINS; pin++) {
        Source *s = &bench.source[pin];
        if (s->kind == WIRE && s->wire.holds && !s->wire.low && pins >> pin & 1) {
            s->wire.holds = false;
            s->level = true;
            settle();
        }
    }
}

/* ---- the registers that QEMU's model lacks; it keeps the others ---- */
static uint64_t *detector(hwaddr offset, int *shift)
{
    for (int k = 0; k < DETECTORS; k++) {
        if (offset == detector_at[k] || offset == detector_at[k] + 4) {
            *shift = (offset - detector_at[k]) * 8;
            return &bench.detect[k];
        }
    }
    return NULL;
}

static uint64_t bench_read(void *opaque, hwaddr offset, unsigned size)
{
    int shift = 0;
    uint64_t *detects = detector(offset, &shift), level;

    advance(now_ns());
    if (detects) {
        return (uint32_t)(*detects >> shift);
    }
    switch (offset) {
    case LEV0:
    case LEV0 + 4:
        level = bench.level;
        wire_sampled(offset == LEV0 ? 0xffffffffull : ~0xffffffffull);
        return (uint32_t)(level >> (offset - LEV0) * 8);
    case EDS0:
    case EDS0 + 4:
        return (uint32_t)(bench.events >> (offset - EDS0) * 8);
    case PUD:
        return bench.pud;
    default:
        return bench.original->read(opaque, offset, size);
    }
}

static void bench_write(void *opaque, hwaddr offset, uint64_t value, unsigned size)
{
    int shift = 0;
    uint64_t *detects = detector(offset, &shift), bits;
    int64_t now = now_ns();

    advance(now);
    value = (uint32_t)value;
    if (detects) {
        *detects = (*detects & ~(0xffffffffull << shift)) | value << shift;
        *detects &= ALL_PINS;
    } else {
        switch (offset) {
        case EDS0:
        case EDS0 + 4:
            bench.events &= ~(value << (offset - EDS0) * 8);
            break;
        case PUD:
            bench.pud = value & 3;
            break;
        case PUDCLK0:
        case PUDCLK0 + 4:
            bits = value << (offset - PUDCLK0) * 8 & ALL_PINS;
            bench.pull_down = bench.pud == 1 ? bench.pull_down | bits : bench.pull_down & ~bits;
            bench.pull_up = bench.pud == 2 ? bench.pull_up | bits : bench.pull_up & ~bits;
            break;
        case SET0:
        case SET0 + 4:
            bench.out |= value << (offset - SET0) * 8;
            break;
        case CLR0:
        case CLR0 + 4:
            bench.out &= ~(value << (offset - CLR0) * 8);
            break;
        default:
            bench.original->write(opaque, offset, value, size);
        }
    }
    dht_listen(now);
    wire_listen(now);
    settle();
    advance(now);
}

static void bench_reset(void *opaque)
{
    if (!bench.irq[0]) {
        Object *ic = object_resolve_path_type("", TYPE_BCM2835_IC, NULL);
        for (int k = 0; ic && k < 4; k++) {
            bench.irq[k] = qdev_get_gpio_in_named(DEVICE(ic), BCM2835_IC_GPU_IRQ, FIRST_IRQ + k);
        }
    }
    memset(bench.detect, 0, sizeof(bench.detect));
    bench.out = bench.events = bench.pud = 0;
    bench.pull_up = 0x1ffull | 7ull << 34 | 0xffull << 46; /* at power-up; chapter 6.2 */
    bench.pull_down = ALL_PINS & ~bench.pull_up & ~(3ull << 28) & ~(3ull << 44);
    settle();
}

/* ---- the handles ---- */
static Source *pin_of(const char *text, const char **rest, Error **errp)
{
    char *end;
    long pin = strtol(text, &end, 10);
    if (end == text || pin < 0 || pin >= PINS) {
        error_setg(errp, "no such pin: %s", text);
        return NULL;
    }
    *rest = end;
    return &bench.source[pin];
}

static char *get_nothing(Object *o, Error **errp)
{
    return g_strdup("");
}

static void set_level(Object *o, const char *text, Error **errp)
{
    const char *rest;
    Source *s = pin_of(text, &rest, errp);
    int level;
    if (!s) {
        return;
    }
    if (sscanf(rest, "%d", &level) != 1 || level < -1 || level > 1) {
        error_setg(errp, "a level is 0, 1 or -1");
        return;
    }
    advance(now_ns());
    s->kind = level < 0 ? NOTHING : STEADY;
    s->level = level > 0;
    s->next = 0;
    settle();
    advance(now_ns());
}

static void set_pulse(Object *o, const char *text, Error **errp)
{
    const char *rest;
    Source *s = pin_of(text, &rest, errp);
    long long low, high;
    unsigned long long count;
    if (!s) {
        return;
    }
    if (sscanf(rest, "%lld %lld %llu", &low, &high, &count) != 3 || low < 1000 || high < 1000) {
        error_setg(errp, "pulses: PIN LOW_NS HIGH_NS COUNT, 1000 ns or more each");
        return;
    }
    advance(now_ns());
    s->kind = PULSES;
    s->level = true;
    s->length[0] = low;
    s->length[1] = high;
    s->left = count * 2;
    s->endless = !count;
    s->next = now_ns() + high;
    settle();
    advance(now_ns());
}

static char *get_pulse(Object *o, Error **errp)
{
    GString *text = g_string_new("");
    for (int pin = 0; pin < PINS; pin++) {
        const Source *s = &bench.source[pin];
        if (s->kind == PULSES && s->next) {
            g_string_append_printf(text, "%d %llu ", pin, (unsigned long long)s->left);
        }
    }
    return g_string_free(text, false);
}

static void set_dht(Object *o, const char *text, Error **errp)
{
    const char *rest;
    Source *s = pin_of(text, &rest, errp);
    unsigned b[5];
    bool fresh;
    if (!s) {
        return;
    }
    advance(now_ns());
    if (strchr(rest, '-')) {
        s->kind = NOTHING;
        s->next = 0;
    } else if (sscanf(rest, " %2x%2x%2x%2x%2x", b, b + 1, b + 2, b + 3, b + 4) == 5) {
        fresh = s->kind != DHT;
        for (int k = 0; k < 5; k++) {
            s->frame[k] = b[k];
        }
        if (fresh) {
            memcpy(s->converted, s->frame, sizeof(s->frame)); /* its conversion at power-up */
            s->kind = DHT;
            s->level = true; /* its module has a pull-up */
            s->next = s->low_since = 0;
        }
    } else {
        error_setg(errp, "a DHT's frame has ten hexadecimal digits");
    }
    settle();
    advance(now_ns());
}

static void set_wire(Object *o, const char *text, Error **errp)
{
    const char *rest;
    Source *s = pin_of(text, &rest, errp);
    unsigned long long id;
    int sixteenths;
    if (!s) {
        return;
    }
    advance(now_ns());
    if (sscanf(rest, " %llx %d", &id, &sixteenths) == 2) {
        Wire *w = &s->wire;
        if (s->kind != WIRE) {
            static const uint8_t power_up[9] = { 0, 0, 0x4b, 0x46, 0x7f, 0xff, 0x0c, 0x10, 0 };
            memset(w, 0, sizeof(*w));
            memcpy(w->scratch, power_up, sizeof(power_up));
            wire_scratch(w, 85 * 16);
        }
        w->rom[0] = 0x28;
        for (int k = 0; k < 6; k++) {
            w->rom[1 + k] = id >> k * 8;
        }
        w->rom[7] = wire_crc(w->rom, 7);
        w->air = sixteenths;
        s->kind = WIRE;
        s->level = !w->holds;
    } else {
        s->kind = NOTHING;
    }
    s->next = 0;
    settle();
    advance(now_ns());
}

static char *get_pins(Object *o, Error **errp)
{
    GString *text = g_string_new("");
    advance(now_ns());
    for (int pin = 0; pin < PINS; pin++) {
        char pull = bench.pull_up >> pin & 1 ? 'u' : bench.pull_down >> pin & 1 ? 'd' : 'n';
        g_string_append_printf(text, "%d:%d:%c:%d:%llu ", bench.gpio->fsel[pin], (int)(bench.level >> pin & 1), pull,
                               bench.source[pin].kind != NOTHING, (unsigned long long)bench.source[pin].events);
    }
    return g_string_free(text, false);
}

/* Called once, by QEMU's GPIO model, when it sets up its registers. */
const MemoryRegionOps *fieldgate_bench(Object *gpio, const MemoryRegionOps *original);
const MemoryRegionOps *fieldgate_bench(Object *gpio, const MemoryRegionOps *original)
{
    bench.gpio = BCM2835_GPIO(gpio);
    bench.original = original;
    bench.ops = *original;
    bench.ops.read = bench_read;
    bench.ops.write = bench_write;
    bench.timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, timer_due, NULL);
    object_property_add_str(gpio, "level", get_nothing, set_level);
    object_property_add_str(gpio, "pulse", get_pulse, set_pulse);
    object_property_add_str(gpio, "dht", get_nothing, set_dht);
    object_property_add_str(gpio, "wire", get_nothing, set_wire);
    object_property_add_str(gpio, "pins", get_pins, NULL);
    qemu_register_reset(bench_reset, NULL);
    return &bench.ops;
}

/* ---- what both I2C devices need: numbers as properties ---- */
static void number_get(Object *o, Visitor *v, const char *name, void *where, Error **errp)
{
    int32_t *at = (int32_t *)((char *)o + (intptr_t)where);
    visit_type_int32(v, name, at, errp);
}

static void number_set(Object *o, Visitor *v, const char *name, void *where, Error **errp)
{
    int32_t *at = (int32_t *)((char *)o + (intptr_t)where);
    visit_type_int32(v, name, at, errp);
}

static void number(Object *o, const char *name, size_t where)
{
    object_property_add(o, name, "int", number_get, number_set, NULL, (void *)(intptr_t)where);
}

/* ---- ADS1115: properties uv0 to uv3, the inputs in microvolts ---- */
#define TYPE_ADS "fieldgate-ads1115"
OBJECT_DECLARE_SIMPLE_TYPE(Ads, ADS)
struct Ads {
    I2CSlave parent;
    uint16_t reg[4];
    uint8_t pointer, at, msb;
    int32_t uv[4];
};

static void ads_convert(Ads *s)
{
    static const int full_scale_mv[8] = { 6144, 4096, 2048, 1024, 512, 256, 256, 256 };
    static const int8_t plus[8] = { 0, 0, 1, 2, 0, 1, 2, 3 }, minus[8] = { 1, 3, 3, 3, -1, -1, -1, -1 };
    int mux = s->reg[1] >> 12 & 7;
    int64_t scale = full_scale_mv[s->reg[1] >> 9 & 7] * 1000ll;
    int64_t uv = (int64_t)s->uv[plus[mux]] - (minus[mux] < 0 ? 0 : s->uv[minus[mux]]);
    int64_t code = uv < 0 ? -((-uv * 32768 + scale / 2) / scale) : (uv * 32768 + scale / 2) / scale;
    s->reg[0] = (uint16_t)(code > 32767 ? 32767 : code < -32768 ? -32768 : code);
}

static int ads_event(I2CSlave *i2c, enum i2c_event event)
{
    ADS(i2c)->at = 0;
    return 0;
}

static int ads_send(I2CSlave *i2c, uint8_t byte)
{
    Ads *s = ADS(i2c);
    if (s->at == 0) {
        s->pointer = byte & 3;
    } else if (s->at == 1) {
        s->msb = byte;
    } else if (s->at == 2 && s->pointer) {
        s->reg[s->pointer] = s->msb << 8 | byte;
        if (s->pointer == 1) {
            if (s->reg[1] & 0x8000) {
                ads_convert(s);
            }
            s->reg[1] |= 0x8000; /* at once idle again */
        }
    }
    s->at++;
    return 0;
}

static uint8_t ads_recv(I2CSlave *i2c)
{
    Ads *s = ADS(i2c);
    if (s->at == 0 && s->pointer == 0 && !(s->reg[1] & 0x0100)) {
        ads_convert(s); /* continuous mode */
    }
    return s->reg[s->pointer] >> (s->at++ & 1 ? 0 : 8);
}

static void ads_init(Object *o)
{
    ADS(o)->reg[1] = 0x8583;
    ADS(o)->reg[2] = 0x8000;
    ADS(o)->reg[3] = 0x7fff;
    for (int k = 0; k < 4; k++) {
        g_autofree char *name = g_strdup_printf("uv%d", k);
        number(o, name, offsetof(Ads, uv) + k * sizeof(int32_t));
    }
}

static void ads_class(ObjectClass *klass, void *data)
{
    I2CSlaveClass *c = I2C_SLAVE_CLASS(klass);
    c->event = ads_event;
    c->send = ads_send;
    c->recv = ads_recv;
}

/* ---- SCD41: properties co2 (ppm), temperature (1/100 °C), humidity (1/100 %), variant (0x1000: SCD41) ---- */
#define TYPE_SCD "fieldgate-scd4x"
OBJECT_DECLARE_SIMPLE_TYPE(Scd, SCD)
struct Scd {
    I2CSlave parent;
    uint8_t at, length, answer[12];
    uint16_t command;
    int32_t co2, temperature, humidity, variant;
    bool measures;
};

static void scd_word(Scd *s, uint16_t word)
{
    uint8_t crc = 0xff, bytes[2] = { word >> 8, word };
    for (int k = 0; k < 2; k++) {
        crc ^= bytes[k];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 0x80 ? crc << 1 ^ 0x31 : crc << 1;
        }
        s->answer[s->length++] = bytes[k];
    }
    s->answer[s->length++] = crc;
}

static int scd_event(I2CSlave *i2c, enum i2c_event event)
{
    SCD(i2c)->at = 0;
    return 0;
}

static int scd_send(I2CSlave *i2c, uint8_t byte)
{
    Scd *s = SCD(i2c);
    if (s->at < 2) {
        s->command = s->command << 8 | byte;
    }
    if (++s->at != 2) {
        return 0;
    }
    s->length = 0;
    switch (s->command) {
    case 0x21b1: /* start_periodic_measurement */
    case 0x21ac: /* start_low_power_periodic_measurement */
        s->measures = true;
        break;
    case 0x3f86: /* stop_periodic_measurement */
        s->measures = false;
        break;
    case 0xe4b8: /* get_data_ready_status */
        scd_word(s, s->measures ? 0x8006 : 0x8000);
        break;
    case 0xec05: /* read_measurement */
        scd_word(s, s->co2);
        scd_word(s, ((int64_t)s->temperature + 4500) * 65535 / 17500);
        scd_word(s, (int64_t)s->humidity * 65535 / 10000);
        break;
    case 0x3682: /* get_serial_number */
        scd_word(s, 0xf896);
        scd_word(s, 0x9f07);
        scd_word(s, 0x3bbe);
        break;
    case 0x202f: /* get_sensor_variant */
        scd_word(s, s->variant);
        break;
    default:
        scd_word(s, 0);
        scd_word(s, 0);
        scd_word(s, 0);
    }
    return 0;
}

static uint8_t scd_recv(I2CSlave *i2c)
{
    Scd *s = SCD(i2c);
    return s->at < s->length ? s->answer[s->at++] : 0xff;
}

static void scd_init(Object *o)
{
    Scd *s = SCD(o);
    s->co2 = 612;
    s->temperature = 2500;
    s->humidity = 3700;
    s->variant = 0x1000;
    number(o, "co2", offsetof(Scd, co2));
    number(o, "temperature", offsetof(Scd, temperature));
    number(o, "humidity", offsetof(Scd, humidity));
    number(o, "variant", offsetof(Scd, variant));
}

static void scd_class(ObjectClass *klass, void *data)
{
    I2CSlaveClass *c = I2C_SLAVE_CLASS(klass);
    c->event = scd_event;
    c->send = scd_send;
    c->recv = scd_recv;
}

static const TypeInfo types[] = {
    { .name = TYPE_ADS, .parent = TYPE_I2C_SLAVE, .instance_size = sizeof(Ads), .instance_init = ads_init,
      .class_init = ads_class },
    { .name = TYPE_SCD, .parent = TYPE_I2C_SLAVE, .instance_size = sizeof(Scd), .instance_init = scd_init,
      .class_init = scd_class },
};
DEFINE_TYPES(types)
