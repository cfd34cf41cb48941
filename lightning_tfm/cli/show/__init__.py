"""Commands on what was trained: status, dashboard, runs, study; table, report, compare, judge; validate and test in
evaluate, translate, export, records, wandb; and inspect, layers, draw."""
