"""Made-up files in the shape of known loggers' ones, two rows each, and what they hold."""

from __future__ import annotations

from typing import Final, NamedTuple


class KnownFile(NamedTuple):
    """A file, what ``fieldgate import`` must be told besides, and each channel's means by its preset."""

    text: str
    encoding: str
    options: list[str]
    length_s: int
    means: dict[str, list[float | None]]


_WINDCUBE: Final = "\n".join([
    "HeaderSize=4", "ID System=WLS7-1", "Altitudes (m)=\t40\t120", "DirectionOffset (°)=0.00", "",
    "Timestamp (end of interval)\tInt Temp (°C)\tExt Temp (°C)\tPressure (hPa)\tRel Humidity (%)\tWiper count"
    "\tVbatt (V)" + "".join(
        f"\t{h}m Wind Speed (m/s)\t{h}m Wind Speed Dispersion (m/s)\t{h}m Wind Speed min (m/s)"
        f"\t{h}m Wind Speed max (m/s)\t{h}m Wind Direction (°)\t{h}m CNR (dB)" for h in (40, 120)),
    "2024/03/01 00:10\t25.1\t5.5\t950.0\t60.0\t0\t12.5\t7.10\t0.70\t5.00\t9.00\t241.0\t-10.0"
    "\t9.10\t0.90\t7.00\t12.00\t250.0\t-12.0\t",
    "2024/03/01 00:20\t25.1\t5.6\t950.0\t60.0\t0\t12.5\t7.20\t0.70\t5.00\t9.00\t242.0\t-10.0"
    "\tNaN\tNaN\tNaN\tNaN\tNaN\t-30.0\t", "",
])  # fmt: skip
_ZX: Final = "\n".join([
    "Unit 300, Firmware: 2.1, Measurement heights: 100m 38m, GPS",
    "Reference,Time and Date,Timestamp (seconds),Met Wind Speed (m/s),Met Wind Direction (deg)" + "".join(
        f",Packets in Average at {h}m,Wind Direction (deg) at {h}m,Horizontal Wind Speed (m/s) at {h}m"
        f",Horizontal Wind Speed Std. Dev. (m/s) at {h}m,Horizontal Wind Speed Min (m/s) at {h}m"
        f",Horizontal Wind Speed Max (m/s) at {h}m,TI at {h}m" for h in (100, 38)),
    "1,01/03/2024 00:00:00,1,4.0,230,35,240,9.1,0.9,7,12,0.1,34,238,7.1,0.7,5,9,0.1",
    "2,01/03/2024 00:10:00,2,4.1,231,0,9999,9999,9999,9999,9999,9999,34,239,7.2,0.7,5,9,0.1", "",
])  # fmt: skip
_SYMPHONIE: Final = "\n".join([
    "NRG Export Service", "Software Version:\t1.0", "", "Site Properties", "Time Zone:\tUTC-5:00", "",
    "Sensor History", "Channel:\t2", "Type:\tAnemometer", "", "Data",
    "Timestamp\tCh2_Anem_85.00m_S_Avg_m/s\tCh2_Anem_85.00m_S_SD_m/s\tCh2_Anem_85.00m_S_Gust_m/s"
    "\tCh13_Analog_40.00m_N_Avg_C\tCh14_Analog_0.00m_N_Avg_hPa\tCh15_Vane_10.00m_SSE_Avg_Deg"
    "\tCh15_Vane_10.00m_SSE_GustDir_Deg\tCh20_Analog_0.00m_N_Avg_W/sqm\tCh106_Calculated___Avg_",
    "2024-02-29 19:00:00\t7.1\t0.7\t9.0\t5.5\t950.0\t241.0\t250.0\t75.6\t0.1",
    "2024-02-29 19:10:00\t7.2\t0.7\t9.1\t5.6\t950.1\t242.0\t250.0\t75.7\t0.1", "",
])  # fmt: skip
_LOGR: Final = "\n".join([
    "NRG Systems Data Logger", "Model Number:\t9431", "", "Sensor History", "Channel:\t104", "",
    "Data", "Timestamp\tCh1_Avg_W/m^2\tCh1_Min_W/m^2\tCh1_NotUsed\tCh12_Avg_Deg\tCh12_SD_Deg\tCh13_Avg_hPa"
    "\tCh104_Avg_m/s\tCh104_SD_m/s\tCh104_Gust_m/s",
    "2024-03-01T00:10:00Z\t-0.4898\t-0.5\t0.0000\t241.0\t24.8\t950.0\t7.1\t0.7\t9.0",
    "2024-03-01T00:20:00Z\t-0.4843\t-0.5\t0.0000\t242.0\t1.3\t950.1\t7.2\t0.7\t9.1", "",
])  # fmt: skip
_HOBO: Final = "\ufeff" + "\r\n".join([
    '"Plot Title: ridge"',
    '"#","Date Time, GMT-07:00","Temp, °C (LGR S/N: 20363442, SEN S/N: 20363443)",'
    '"RH, % (LGR S/N: 20363442, SEN S/N: 20363443, LBL: air)","Host Connected (LGR S/N: 20363442)"',
    "1,02/29/24 05:00:00 PM,5.5,60.1,", "2,02/29/24 05:10:00 PM,5.6,60.2,",
    "3,02/29/24 05:13:20 PM,,,Logged", "",
])  # fmt: skip
_MIDC: Final = "\n".join([
    "DATE (MM/DD/YYYY),MST,Global PSP [W/m^2],Global PSP (Accumulated) [kWhr/m^2],Temperature @ 2m [deg C],"
    "Temperature @ 50m [deg C],Avg Wind Speed @ 10m [m/s]",
    "02/29/2024,17:01,100.5,0,5.5,5.4,7.1", "02/29/2024,17:02,101.5,0,5.6,5.5,7.2", "",
])  # fmt: skip
_SURFRAD: Final = "\n".join([
    " Somewhere", "   46.00  -100.00  500 m version 1",
    *(f" 2024  61  3  1  0 {at:2}  {at / 60:.3f}  91.65 {solar:8.1f} 0" + " -9999.9 0" * 14 +
      "     5.5 0    60.1 0     7.1 0   241.0 0   950.0 0" for at, solar in ((0, 100.5), (1, -9999.9))), "",
])  # fmt: skip
_BSRN: Final = "\n".join([
    "/* DATA DESCRIPTION:", "Parameter(s):\tDATE/TIME (Date/Time) * GEOCODE", "*/",
    "Date/Time\tHeight [m]\tSWD [W/m**2]\tSWD std dev [±]\tSWD min [W/m**2]\tSWD max [W/m**2]\tDIR [W/m**2]"
    "\tT2 [°C]\tRH [%]\tPoPoPoPo [hPa]",
    "2024-03-01T00:00\t2\t100.5\t1\t99\t102\t50\t5.5\t60.1\t950",
    "2024-03-01T00:01\t2\t\t\t\t\t\t5.6\t60.2\t950", "",
])  # fmt: skip

FILES: Final = {
    "windcube": KnownFile(_WINDCUBE, "latin-1", [], 600, {
        "lidar-40m.wind_speed": [7.1, 7.2], "lidar-120m.wind_speed": [9.1, None],
        "lidar-40m.wind_direction": [241, 242], "lidar-120m.wind_direction": [250, None],
        "air.temperature": [5.5, 5.6], "air.humidity": [60, 60], "air.pressure": [95, 95],
    }),
    "zx": KnownFile(_ZX, "utf-8", ["--stamps", "start"], 600, {
        "lidar-100m.wind_speed": [9.1, None], "lidar-38m.wind_speed": [7.1, 7.2],
        "lidar-100m.wind_direction": [240, None], "lidar-38m.wind_direction": [238, 239],
        "met.wind_speed": [4, 4.1], "met.wind_direction": [230, 231],
    }),
    "symphoniepro": KnownFile(_SYMPHONIE, "latin-1", ["--utc-offset=-05:00"], 600, {
        "ch2.wind_speed": [7.1, 7.2], "ch13.temperature": [5.5, 5.6], "ch14.pressure": [95, 95.01],
        "ch15.wind_direction": [241, 242], "ch20.irradiance": [75.6, 75.7],
    }),
    "logr": KnownFile(_LOGR, "latin-1", ["--utc-offset=+00:00", "--stamps", "end"], 600, {
        "ch104.wind_speed": [7.1, 7.2], "ch12.wind_direction": [241, 242], "ch13.pressure": [95, 95.01],
        "ch1.irradiance": [-0.4898, -0.4843],
    }),
    "hobo": KnownFile(
        _HOBO, "utf-8",
        ["--utc-offset=-07:00", "--stamps", "start", "--interval", "10m", "--scan", "10m"],
        600, {"s20363443.temperature": [5.5, 5.6], "s20363443.humidity": [60.1, 60.2]},
    ),
    "midc": KnownFile(_MIDC, "utf-8", ["--utc-offset=-07:00"], 60, {
        "global-PSP.irradiance": [100.5, 101.5], "air-2m.temperature": [5.5, 5.6],
        "air-50m.temperature": [5.4, 5.5], "cup-10m.wind_speed": [7.1, 7.2],
    }),
    "surfrad": KnownFile(_SURFRAD, "utf-8", ["--stamps", "start"], 60, {
        "global.irradiance": [100.5, None], "air.temperature": [5.5, 5.5], "air.humidity": [60.1, 60.1],
        "air.pressure": [95, 95], "wind.wind_speed": [7.1, 7.1], "wind.wind_direction": [241, 241],
    }),
    "bsrn": KnownFile(_BSRN, "utf-8", ["--stamps", "start"], 60, {
        "global.irradiance": [100.5, None], "air.temperature": [5.5, 5.6], "air.humidity": [60.1, 60.2],
        "air.pressure": [95, 95],
    }),
}  # fmt: skip
