"""Pages, browsers, and servers of pages. The behaviour tests use the page too."""
