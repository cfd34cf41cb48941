"""Commands that report and explain: table, report, compare (pool, ladder), judge, inspect, layers, draw."""
