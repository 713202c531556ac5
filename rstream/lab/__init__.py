"""Virtual time: fault simulation of the core, and the policy lab."""
