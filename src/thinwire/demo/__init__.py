"""`thinwire demo`: every recipe trains two small models on this machine, beside plain averaging."""
