-- Histograms of days: nothing reads them.
DELETE FROM series WHERE level = 3;

-- An experiment that has left the configuration has "ended"; the same definition is another one thereafter.
CREATE TABLE experiment_with_end (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    metric INTEGER NOT NULL,
    margin REAL NOT NULL,
    arms TEXT NOT NULL,
    since INTEGER NOT NULL,
    decided INTEGER,
    decision TEXT,
    ended INTEGER
);
INSERT INTO experiment_with_end SELECT id, name, metric, margin, arms, since, decided, decision, NULL FROM experiment;
DROP TABLE experiment;
ALTER TABLE experiment_with_end RENAME TO experiment;
CREATE UNIQUE INDEX experiment_running ON experiment (name, metric, margin, arms) WHERE ended IS NULL;

-- "latest" is the time of the last removal of what is old, in Unix seconds.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
