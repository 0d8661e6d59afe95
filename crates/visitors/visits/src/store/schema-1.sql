-- Names of hosts, routes and networks by kind; "used" is the last day, counted from 1970.
CREATE TABLE name (
    kind INTEGER NOT NULL,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (kind, number),
    UNIQUE (kind, text)
) WITHOUT ROWID;

-- Samples of visits: "seen" came, "rows" has some of them, each of fixed length, in random order.
-- Level 0 is a minute, 1 an hour; what a level above has already is "rolled". "start" is in Unix seconds.
CREATE TABLE sample (
    id INTEGER PRIMARY KEY,
    level INTEGER NOT NULL,
    rolled INTEGER NOT NULL,
    start INTEGER NOT NULL,
    host INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    rows BLOB NOT NULL
);
CREATE INDEX sample_by_start ON sample (level, rolled, start, host);

-- Histograms of times, of each host and of all (-1). Level 0 is a minute, 1 ten minutes, 2 an hour, 3 a day.
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    level INTEGER NOT NULL,
    rolled INTEGER NOT NULL,
    start INTEGER NOT NULL,
    host INTEGER NOT NULL,
    metric INTEGER NOT NULL,
    histogram BLOB NOT NULL
);
CREATE INDEX series_by_start ON series (level, rolled, start);
CREATE INDEX series_by_host ON series (level, metric, host, start);

-- Experiments by definition, "arms" one to a line; "decision" as text once there is one.
CREATE TABLE experiment (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    metric INTEGER NOT NULL,
    margin REAL NOT NULL,
    arms TEXT NOT NULL,
    since INTEGER NOT NULL,
    decided INTEGER,
    decision TEXT,
    UNIQUE (name, metric, margin, arms)
);

-- Sums over the logarithms of times in each arm.
CREATE TABLE arm (
    experiment INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    metric INTEGER NOT NULL,
    visits INTEGER NOT NULL,
    sum REAL NOT NULL,
    squares REAL NOT NULL,
    PRIMARY KEY (experiment, arm, metric)
) WITHOUT ROWID;
