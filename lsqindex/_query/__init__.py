"""One search: a query becomes a plan, a source finds candidates, a ranking makes results of them."""
