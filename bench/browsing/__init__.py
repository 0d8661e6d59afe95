"""What bench/page, bench/compression and the tests of pages share: a page, a browser, a link, servers."""
