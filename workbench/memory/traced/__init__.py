"""Memory of modules that the analytic model does not know, learnt from small steps that were really run."""
