"""The statements of the bare PFT script: those of the playbook, with parameters where it has templates."""

from __future__ import annotations

_PENDING = "SET status = 'pending', claimed_at = NULL, updated_at = now()"
_CLAIMED = "SET status = 'claimed', claimed_at = now(), attempt_count = queue.attempt_count + 1, updated_at = now()"
_DONE = "SET status = 'done', done_at = now(), updated_at = now()"

SEED_PATIENTS = """
INSERT INTO public.pft_test_patient_ids_work (patient_id, facility_mapping_id)
SELECT ($1::bigint - 1) * $2::bigint + place, $1::bigint FROM generate_series(1, $2::bigint) AS place
"""

SEED_QUEUE = """
INSERT INTO public.pft_test_patient_work_queue (execution_id, facility_mapping_id, data_type, patient_id)
SELECT $1::text, facility_mapping_id, data_type, patient_id
FROM public.pft_test_patient_ids_work
CROSS JOIN unnest(ARRAY['assessments', 'conditions', 'medications', 'vital_signs', 'demographics']) AS data_type
WHERE facility_mapping_id = $2::bigint
"""

CLAIM_PATIENTS = f"""
WITH reclaimed AS (
    UPDATE public.pft_test_patient_work_queue {_PENDING}
    WHERE execution_id = $1 AND facility_mapping_id = $2 AND data_type = $3 AND status = 'claimed'
      AND claimed_at < now() - interval '5 minutes'
), candidates AS (
    SELECT patient_id FROM public.pft_test_patient_work_queue
    WHERE execution_id = $1 AND facility_mapping_id = $2 AND data_type = $3 AND status = 'pending'
    ORDER BY patient_id FOR UPDATE SKIP LOCKED LIMIT $4
)
UPDATE public.pft_test_patient_work_queue AS queue {_CLAIMED}
FROM candidates
WHERE queue.execution_id = $1 AND queue.facility_mapping_id = $2 AND queue.data_type = $3
  AND queue.patient_id = candidates.patient_id
RETURNING queue.patient_id, queue.facility_mapping_id
"""

EXPAND_MDS = """
INSERT INTO public.pft_test_mds_assessment_ids_work (assessment_id, pcc_patient_id, facility_mapping_id)
SELECT named.assessment_id, page.pcc_patient_id, page.facility_mapping_id
FROM public.pft_test_patient_assessments AS page
CROSS JOIN LATERAL jsonb_array_elements(page.payload -> 'data') AS record (fields)
CROSS JOIN LATERAL jsonb_array_elements_text(record.fields -> 'mdsAssessmentIds') AS named (assessment_id)
WHERE page.facility_mapping_id = $1
ON CONFLICT (assessment_id) DO NOTHING
"""

CLAIM_MDS = f"""
WITH reclaimed AS (
    UPDATE public.pft_test_mds_assessment_ids_work {_PENDING}
    WHERE facility_mapping_id = $1 AND status = 'claimed' AND claimed_at < now() - interval '60 seconds'
), candidates AS (
    SELECT assessment_id FROM public.pft_test_mds_assessment_ids_work
    WHERE facility_mapping_id = $1 AND status = 'pending'
    ORDER BY assessment_id FOR UPDATE SKIP LOCKED LIMIT $2
)
UPDATE public.pft_test_mds_assessment_ids_work AS queue {_CLAIMED}
FROM candidates WHERE queue.assessment_id = candidates.assessment_id
RETURNING queue.assessment_id, queue.pcc_patient_id, queue.facility_mapping_id
"""


def save_page(data_type: str) -> str:
    """Return the statement that keeps a page of this kind of data and marks its patient done."""
    return f"""
WITH saved AS (
    INSERT INTO public.pft_test_patient_{data_type}
        (pcc_patient_id, facility_mapping_id, page_number, payload, is_last_page)
    VALUES ($1::bigint, $2::bigint, 1, $4::text::jsonb, $5::boolean)
    ON CONFLICT (pcc_patient_id, facility_mapping_id, page_number)
    DO UPDATE SET payload = EXCLUDED.payload, is_last_page = EXCLUDED.is_last_page
)
UPDATE public.pft_test_patient_work_queue {_DONE}
WHERE execution_id = $3 AND facility_mapping_id = $2::bigint AND data_type = '{data_type}' AND patient_id = $1::bigint
"""


SAVE_DEMOGRAPHICS = f"""
WITH saved AS (
    INSERT INTO public.pft_test_patient_demographics (pcc_patient_id, facility_mapping_id, payload, fetched_at)
    VALUES ($1::bigint, $2::bigint, $4::text::jsonb, now())
    ON CONFLICT (pcc_patient_id, facility_mapping_id)
    DO UPDATE SET payload = EXCLUDED.payload, fetched_at = EXCLUDED.fetched_at
)
UPDATE public.pft_test_patient_work_queue {_DONE}
WHERE execution_id = $3 AND facility_mapping_id = $2::bigint AND data_type = 'demographics' AND patient_id = $1::bigint
"""

SAVE_MDS = f"""
WITH saved AS (
    INSERT INTO public.pft_test_mds_assessment_details
        (assessment_id, pcc_patient_id, facility_mapping_id, payload, fetched_at)
    VALUES ($1::text, $2::bigint, $3::bigint, $4::text::jsonb, now())
    ON CONFLICT (assessment_id) DO UPDATE SET payload = EXCLUDED.payload, fetched_at = EXCLUDED.fetched_at
)
UPDATE public.pft_test_mds_assessment_ids_work {_DONE} WHERE assessment_id = $1::text
"""

TOTALS = """
SELECT (SELECT count(*) FROM public.pft_test_patient_assessments) AS assessments,
       (SELECT count(*) FROM public.pft_test_patient_conditions) AS conditions,
       (SELECT count(*) FROM public.pft_test_patient_medications) AS medications,
       (SELECT count(*) FROM public.pft_test_patient_vital_signs) AS vital_signs,
       (SELECT count(*) FROM public.pft_test_patient_demographics) AS demographics,
       (SELECT count(*) FROM public.pft_test_mds_assessment_details) AS mds
"""

MDS_BY_FACILITY = """
SELECT count(*) AS fetched FROM public.pft_test_mds_assessment_details
GROUP BY facility_mapping_id ORDER BY facility_mapping_id
"""
