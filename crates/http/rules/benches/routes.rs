//! Time for the choice of a route: `cargo bench --package brisk-rules --bench routes`.

use std::hint::black_box;
use std::net::IpAddr;

use brisk_http::message::HeaderList;
use brisk_rules::{Conditions, Examined, GroupPattern, MapPattern, Pairs, Pattern, RoutePath, Routes};
use criterion::{Criterion, criterion_group, criterion_main};
use http::Method;

/// Expressions as operators write them.
const EXPRESSIONS: [&str; 4] = [
    "^/api/users/[^/]+/posts/[0-9]+$",
    r"\.(png|jpe?g|gif|css|js)$",
    "^/api/(de|en|fr)/products/([^/]+)/([0-9]+)(/.*)?$",
    "(?i)(bot|crawl|spider|slurp)",
];

fn paths(criterion: &mut Criterion) {
    for number in [10, 1000, 10_000, 100_000] {
        let prefix = |number| RoutePath::Prefix(format!("/service-{number}/v{}", number % 7));
        let routes = Routes::new((0..number).map(|number| (prefix(number), number)));
        let path = format!("/service-{}/v{}/users/17", number / 2, number / 2 % 7);
        criterion.bench_function(&format!("{number} paths"), |bencher| {
            bencher.iter(|| routes.find(black_box(path.as_bytes()), |_| true));
        });
    }
    // Paths that all precede each other.
    let routes = Routes::new((1..1000).map(|number| (RoutePath::Prefix("/a".repeat(number)), number)));
    let path = "/a".repeat(1000);
    criterion.bench_function("1000 paths within each other, the shortest holds", |bencher| {
        bencher.iter(|| routes.find(black_box(path.as_bytes()), |number| *number == 1));
    });
}

/// Routes of one path, of which the last one holds.
fn expressions(criterion: &mut Criterion) {
    let headers = HeaderList::new();
    for (name, path) in
        [("40 bytes", "/api/items/4711/comments/of/somebody/xyz".to_owned()), ("4 KiB", "/api/x".repeat(682))]
    {
        for number in [1, 10, 100, 1000] {
            let conditions = |index: usize| {
                let text = format!("{}|^/never{index}$", EXPRESSIONS[index % EXPRESSIONS.len()]);
                let path = Some(Pattern::new(&text).expect("an expression"));
                (RoutePath::Prefix("/api".to_owned()), Some(Conditions { path, ..Conditions::default() }))
            };
            let last = (RoutePath::Prefix("/api".to_owned()), None);
            let routes = Routes::new((0..number).map(conditions).chain([last]));
            let client = IpAddr::from([192, 0, 2, 1]);
            criterion.bench_function(&format!("{number} expressions on {name}"), |bencher| {
                bencher.iter(|| {
                    let path = black_box(path.as_bytes());
                    let examined = Examined {
                        method: &Method::GET,
                        is_tunnel: false,
                        path,
                        query: None,
                        headers: &headers,
                        client,
                        pairs: Pairs::default(),
                    };
                    let holds = |when: &Conditions| when.hold(&examined).expect("a short request");
                    let found = routes.find(path, |route| route.as_ref().is_none_or(holds));
                    assert!(found.is_some_and(Option::is_none));
                });
            });
        }
    }
}

fn groups(criterion: &mut Criterion) {
    let pattern = GroupPattern::new("^https://([^/]*)(/.*)$").expect("an expression");
    let pattern = MapPattern::formed(pattern, "http://{1}{2}").expect("groups");
    for (name, value) in [("40 bytes", "x".repeat(20)), ("4 KiB", "x".repeat(4070))] {
        let value = format!("https://a.example/{value}");
        criterion.bench_function(&format!("groups of {name}"), |bencher| {
            bencher.iter(|| pattern.result(black_box(value.as_bytes()), &()));
        });
    }
}

criterion_group!(benches, paths, expressions, groups);
criterion_main!(benches);
