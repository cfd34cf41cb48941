"""Commands that train: demo, fit, sweep, tune, resume, plan, work."""
