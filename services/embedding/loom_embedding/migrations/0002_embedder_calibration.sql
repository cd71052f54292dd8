-- What each model's thresholds are derived from: quantiles of the cosines of pairs whose relation is known.
CREATE TABLE IF NOT EXISTS embedder_calibration {on_cluster}
(
    model String,
    paraphrase_p50 Float64,
    paraphrase_p75 Float64,
    question_p10 Float64,
    question_p25 Float64,
    question_p75 Float64,
    distractor_p90 Float64,
    calibrated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY model;
