"""Tables and views of the insights, the same in the live file and in the snapshot that analysts open.

Primary keys only: on DuckDB 1.5.5 secondary and persistent HNSW indexes lose rows after a kill -9.
Times are microseconds UTC in the tables and TIMESTAMP in the views.
"""

SCHEMA_VERSION = 1
DIMENSIONS = 384

INSIGHTS = f"""
CREATE TABLE IF NOT EXISTS insights (
    id VARCHAR PRIMARY KEY,
    content VARCHAR NOT NULL,
    category VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    confidence DOUBLE NOT NULL,
    helpful BIGINT NOT NULL,
    harmful BIGINT NOT NULL,
    alpha DOUBLE NOT NULL,
    beta DOUBLE NOT NULL,
    support BIGINT NOT NULL,
    claim JSON,
    tool VARCHAR,
    chain VARCHAR,
    token_pair VARCHAR,
    regime VARCHAR,
    stability BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_accessed BIGINT NOT NULL,
    last_reinforced BIGINT NOT NULL,
    access_count BIGINT NOT NULL,
    superseded_by VARCHAR,
    valid_from BIGINT NOT NULL,
    valid_to BIGINT,
    erased_evidence BIGINT DEFAULT 0,
    embedding FLOAT[{DIMENSIONS}] NOT NULL
)"""

ERASED_EVIDENCE = "ALTER TABLE insights ADD COLUMN IF NOT EXISTS erased_evidence BIGINT DEFAULT 0"
"""For files that were made before there was erasure."""

OPERATIONS = """
CREATE TABLE IF NOT EXISTS operations (
    op_id VARCHAR PRIMARY KEY,
    log_offset BIGINT NOT NULL,
    op VARCHAR NOT NULL,
    insight_id VARCHAR NOT NULL,
    about JSON,
    reason VARCHAR NOT NULL,
    actor VARCHAR NOT NULL,
    "at" BIGINT NOT NULL,
    weight DOUBLE NOT NULL,
    content VARCHAR,
    category VARCHAR,
    kind VARCHAR,
    claim JSON,
    evidence VARCHAR[] NOT NULL,
    cause VARCHAR,
    refused VARCHAR
)"""
"""Every operation that ever came, once; `refused` says why one could not be applied."""

CHANGES = """
CREATE TABLE IF NOT EXISTS changes (
    op_id VARCHAR,
    insight_id VARCHAR,
    confidence_before DOUBLE,
    confidence_after DOUBLE NOT NULL,
    state_before VARCHAR,
    state_after VARCHAR NOT NULL,
    PRIMARY KEY (op_id, insight_id)
)"""
"""What an operation did: one row an insight it changed, NULL before where it made the insight."""

META = "CREATE TABLE IF NOT EXISTS meta (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)"
"""`schema_version`, and `progress`: how far insight-ops has been folded (schemas/progress.py, JSON).

`erased`: something was erased since the file was written anew (sinks/insights_erasure.py)."""

LESSONS = """
CREATE OR REPLACE VIEW lessons AS
SELECT id, confidence, state, category, content, helpful, harmful,
       alpha / (alpha + beta) AS probability, support, erased_evidence, tool, chain, token_pair, claim,
       make_timestamp(created_at) AS created_at,
       make_timestamp(last_reinforced) AS last_reinforced
FROM insights
WHERE state IN ('candidate', 'active')
ORDER BY confidence DESC, id"""
"""What is held to be true now, the surest first. `probability`: mean of the Beta posterior that the claim holds.

`erased_evidence`: events behind it that were forgotten; `support` counts them no more."""

HISTORY = """
CREATE OR REPLACE VIEW history AS
SELECT c.insight_id, make_timestamp(o."at") AS "at", o.op, o.reason, o.actor, o.weight,
       c.confidence_before, c.confidence_after, c.state_before, c.state_after, o.cause, o.op_id, o.log_offset
FROM changes c JOIN operations o USING (op_id)
ORDER BY o.log_offset, c.insight_id"""
"""What changed each insight, when, why, and by how much."""

EVIDENCE = """
CREATE OR REPLACE VIEW evidence AS
SELECT c.insight_id, e.event_id, o.op, make_timestamp(o."at") AS "at", o.op_id
FROM changes c JOIN operations o USING (op_id), unnest(o.evidence) AS e (event_id)"""
"""Which events stand behind an insight, and through which operation."""

STATEMENTS = (INSIGHTS, ERASED_EVIDENCE, OPERATIONS, CHANGES, META, LESSONS, HISTORY, EVIDENCE)
