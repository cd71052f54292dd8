-- A namespace's own calibration and the pairs that it was made from, which are that namespace's data: they are measured
-- again when the model changes or drifts, and removed when the calibration is.
CREATE TABLE IF NOT EXISTS namespace_calibration_result {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    model String,
    paraphrase_p50 Float64,
    paraphrase_p75 Float64,
    question_p10 Float64,
    question_p25 Float64,
    question_p75 Float64,
    distractor_p90 Float64,
    similar_one Array(String) CODEC(ZSTD),
    similar_other Array(String) CODEC(ZSTD),
    distractor_one Array(String) CODEC(ZSTD),
    distractor_other Array(String) CODEC(ZSTD),
    calibrated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace);
