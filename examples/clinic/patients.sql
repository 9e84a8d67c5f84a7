-- One row per patient, with names and types a reader expects.
SELECT
    patientId AS patient_id,
    concat(firstName, ' ', lastName) AS name,
    gender,
    CAST(dob AS date) AS born,
    CASE
        WHEN year(CAST(dob AS date)) > 1976 THEN 'under 50'
        WHEN year(CAST(dob AS date)) > 1956 THEN '50 to 69'
        ELSE '70 and over'
    END AS age_band
FROM patients_raw
WHERE status = 'active'
