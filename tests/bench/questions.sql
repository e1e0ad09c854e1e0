-- What analysts ask, as docs/analyse.md does; tests.bench.lake measures each.

-- a month of one channel
SELECT interval_start, avg, min, max FROM statistics
WHERE gateway = 'mast-07' AND channel = 'cup-50m-a.wind_speed' ORDER BY 1;

-- a day of one mast
SELECT channel, interval_start, avg FROM statistics WHERE gateway = 'mast-07' AND date = '2026-10-30' ORDER BY 1, 2;

-- means of all masts
SELECT gateway, avg(avg) AS mean FROM statistics WHERE quantity = 'wind_speed' GROUP BY 1 ORDER BY 1;

-- recovery by channel and day
SELECT channel, date, sum(count) / sum(expected) AS recovery FROM statistics
WHERE gateway = 'mast-07' GROUP BY ALL ORDER BY ALL;

-- recovery of the fleet
SELECT gateway, count(*) FILTER (count > 0) / count(*) AS recovery FROM statistics GROUP BY 1 ORDER BY 1;

-- the course of a day
SELECT hour(interval_start) AS hour, avg(avg) AS mean, avg(sd) AS sd FROM statistics
WHERE gateway = 'mast-07' AND channel = 'cup-50m-a.wind_speed' GROUP BY 1 ORDER BY 1;

-- a distribution of speeds
SELECT floor(avg) AS bin, count(*) AS n FROM statistics
WHERE channel = 'cup-50m-a.wind_speed' AND avg IS NOT NULL GROUP BY 1 ORDER BY 1;

-- a wind rose
SELECT * FROM wind_rose('cup-50m-a.wind_speed', 'vane-48m.wind_direction') WHERE gateway = 'mast-07' ORDER BY ALL;

-- the highest gusts
SELECT gateway, channel, interval_start, max FROM statistics
WHERE quantity = 'wind_speed' ORDER BY max DESC NULLS LAST, 1, 2, 3 LIMIT 20;

-- shear by month
SELECT gateway, month(interval_start) AS month, avg(shear_alpha) AS alpha FROM mast GROUP BY ALL ORDER BY ALL;
