"""Shared code of bench/page, bench/compression and the tests of pages: a page, a browser, a link, servers."""
