-- The tables that the JDBC sink fills from the topics lake.*, and views for charts. PostgreSQL 15 or newer:
--   psql -d fieldgate -f schema.sql
-- Doing it again changes nothing but the views. Times are UTC instants; a row is as in the lake.

CREATE TABLE IF NOT EXISTS statistics (
  gateway text, channel text, interval_s integer, interval_start timestamptz,
  quantity text, unit text, avg float8, min float8, max float8, sd float8, gust float8,
  max_time timestamptz, gust_time timestamptz, cube_mean float8,
  count bigint, expected float8, recovery float8, period_ms integer,
  n_good bigint, n_not_evaluated bigint, n_suspect bigint, n_fail bigint, n_missing bigint,
  quality integer, version integer, updated_at timestamptz, date date, sum float8, rate float8, changes bigint,
  PRIMARY KEY (gateway, channel, interval_s, interval_start)
);
CREATE TABLE IF NOT EXISTS mast (
  gateway text, interval_s integer, interval_start timestamptz,
  turbulence_intensity jsonb, wind_power_density jsonb, pair_difference jsonb,
  shear_alpha float8, air_density float8, insolation float8, inputs jsonb,
  version integer, updated_at timestamptz, date date, veer float8, insolation_by_channel jsonb,
  PRIMARY KEY (gateway, interval_s, interval_start)
);
CREATE TABLE IF NOT EXISTS presence (
  gateway text, channel text, last_seen timestamptz, last_time timestamptz, last_value float8, state text,
  pending bigint, lost bigint, announced bigint, period_ms integer, updated_at timestamptz,
  PRIMARY KEY (gateway, channel)
);
CREATE TABLE IF NOT EXISTS events (
  gateway text, id text, "time" timestamptz, kind text, run text, seq bigint, fields jsonb, announced jsonb,
  kafka_topic text, kafka_partition integer, kafka_offset bigint, kafka_time timestamptz,
  updated_at timestamptz, date date,
  PRIMARY KEY (gateway, id, "time")
);
CREATE TABLE IF NOT EXISTS alerts (
  id text PRIMARY KEY, rule text, rule_version text, kind text, severity text, gateway text, channel text,
  raised_at timestamptz, cleared_at timestamptz, value float8, detail text, historical boolean,
  command_id text, updated_at timestamptz
);
CREATE INDEX IF NOT EXISTS statistics_by_time ON statistics (interval_start);
CREATE INDEX IF NOT EXISTS events_by_time ON events ("time");

-- Connect delivers a record at least once, and a topic that is read again begins with old rows: only a newer row
-- replaces one. Not by version: a lake that is made anew begins with 1 again.
CREATE OR REPLACE FUNCTION keep_newer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.updated_at < OLD.updated_at THEN
    RETURN NULL;
  END IF;
  RETURN NEW;
END $$;
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['statistics', 'mast', 'presence', 'events', 'alerts'] LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER keep_newer BEFORE UPDATE ON %I FOR EACH ROW EXECUTE FUNCTION keep_newer()', name);
  END LOOP;
END $$;

-- The last value of each channel, with its name and unit.
CREATE OR REPLACE VIEW last_values AS
SELECT p.gateway, p.channel, split_part(p.channel, '.', 1) AS sensor, s.quantity, p.last_time, p.last_value, s.unit,
  p.state, p.last_seen
FROM presence p
LEFT JOIN LATERAL (
  SELECT quantity, unit FROM statistics
  WHERE statistics.gateway = p.gateway AND statistics.channel = p.channel
  ORDER BY interval_s DESC, interval_start DESC LIMIT 1
) s ON true;

-- Statistics with a label such as "cup-50m-a wind speed (m/s)"; the interval's end beside its start.
CREATE OR REPLACE VIEW statistics_named AS
SELECT split_part(channel, '.', 1) || ' ' || replace(quantity, '_', ' ') || ' (' || coalesce(unit, '1') || ')' AS label,
  split_part(channel, '.', 1) AS sensor, interval_start + interval_s * interval '1 second' AS interval_end, statistics.*
FROM statistics;

-- What a mast's channels show together, a row a channel.
CREATE OR REPLACE VIEW mast_by_channel AS
SELECT mast.gateway, interval_s, interval_start, each.key AS channel,
  (turbulence_intensity ->> each.key)::float8 AS turbulence_intensity,
  (wind_power_density ->> each.key)::float8 AS wind_power_density_w_m2
FROM mast, LATERAL (
  SELECT key FROM jsonb_each(turbulence_intensity) UNION SELECT key FROM jsonb_each(wind_power_density)
) each;
