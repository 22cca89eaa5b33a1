"""`thinwire demo`: a preset of `bench train`, and a page.

Every recipe trains two small models on this machine, over the loopback, beside plain averaging.
"""
