-- What the clinic publishes: how many readings each age band has, and their average.
SELECT age_band, count(*) AS readings, round(avg(reading), 1) AS average
FROM readings
GROUP BY age_band
ORDER BY age_band
