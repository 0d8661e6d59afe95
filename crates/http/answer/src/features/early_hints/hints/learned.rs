//! Links of earlier responses by page, shared by the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::HeaderValue;

use super::PageKey;

/// Number of pages per route whose links are remembered: at most 320 KiB.
pub(super) const PAGES: usize = 64;

/// Links of earlier responses of one route, shared by the workers.
///
/// Read without a lock by each navigation. Replaced as a whole if a page has other links than before, which is rare.
#[derive(Debug, Default)]
pub struct LearnedHints(ArcSwap<Vec<Arc<Page>>>);

/// A page and its links.
#[derive(Debug)]
struct Page {
    key: PageKey,
    links: Vec<HeaderValue>,
    /// Whether the links were confirmed since the page was last considered for removal.
    is_confirmed: AtomicBool,
}

impl LearnedHints {
    /// Calls `use_links` with the links of a page, if any are known.
    pub(super) fn with<T>(&self, page: &PageKey, use_links: impl FnOnce(&[HeaderValue]) -> T) -> T {
        let pages = self.0.load();
        use_links(pages.iter().find(|known| known.key == *page).map_or(&[], |known| &known.links))
    }

    /// Remembers the links of the latest response of a page. Beyond [`PAGES`], the oldest page without a response since the
    /// last removal is forgotten.
    pub(super) fn learn(&self, key: &PageKey, links: Vec<HeaderValue>) {
        // Most responses confirm the known links, which needs no write.
        let pages = self.0.load();
        match pages.iter().find(|known| known.key == *key) {
            None if links.is_empty() => return,
            Some(known) if known.links == links => {
                // The flag is read first: a store for each response would move its
                // cache line between workers.
                if !known.is_confirmed.load(Ordering::Relaxed) {
                    known.is_confirmed.store(true, Ordering::Relaxed);
                }
                return;
            }
            _ => {}
        }
        let page = Arc::new(Page { key: key.clone(), links, is_confirmed: AtomicBool::new(false) });
        // The closure runs again if another worker has written in the meantime.
        self.0.rcu(|pages| {
            let mut pages: Vec<_> = pages.iter().filter(|known| known.key != *key).cloned().collect();
            if !page.links.is_empty() {
                if pages.len() >= PAGES {
                    let unused =
                        pages.iter().position(|page| !page.is_confirmed.swap(false, Ordering::Relaxed));
                    // If all were confirmed, the oldest page is removed.
                    pages.remove(unused.unwrap_or(0));
                }
                pages.push(Arc::clone(&page));
            }
            pages
        });
    }

    /// Number of pages, and whether `key` is one of them.
    #[cfg(test)]
    pub(super) fn known(&self, key: &PageKey) -> (usize, bool) {
        let pages = self.0.load();
        (pages.len(), pages.iter().any(|page| page.key == *key))
    }
}
