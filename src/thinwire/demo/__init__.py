"""`thinwire demo`: the same training over slow links, by a few recipes, for real; and a page."""
