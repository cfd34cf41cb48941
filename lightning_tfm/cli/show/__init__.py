"""Commands that report and explain: table, report, compare (meta-analysis, scaling), judge, inspect, layers, draw."""
