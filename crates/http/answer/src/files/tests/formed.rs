//! Files at paths that expressions form: `rewrite_files`.

use super::*;

#[tokio::test]
async fn an_expression_forms_the_path_of_a_file() {
    let mut site = site();
    let pattern = brisk_rules::GroupPattern::new("^/files/v[0-9]+/(.*)$").expect("a pattern");
    let rewrite = PathRewrite::new(pattern, "/{1}").expect("a template");
    let settings = StaticSettings { rewrite: Some([rewrite].into()), ..StaticSettings::new(site.root()) };
    site.files = StaticFiles::new(&settings, &files_route());
    let response = site.get("/files/v12/a.txt?q", &[]).await;
    assert_eq!(response.extensions().get::<SentFile>().map(|file| file.0.path()), Some("/a.txt"));
    assert_eq!(text(response).await, "0123456789");
    let folder = site.get("/files", &[]).await;
    assert_eq!(folder.headers()["location"], "/files/", "a path that does not match");
    for (target, expected) in [
        ("/files", 301),
        ("/files/a.txt", 200),
        ("/files/v1/docs/", 200),
        ("/files/v1/docs", 404),
        ("/files/v1/.well-known/k", 200),
        ("/files/v1/.env", 404),
        ("/files/v1/none", 404),
        ("/files/vx/a.txt", 404),
    ] {
        assert_eq!(site.status(target).await, expected, "{target}");
    }
}

#[tokio::test]
async fn the_first_formed_path_with_a_file_is_sent() {
    let mut site = site();
    fs::write(site.root().join("docs/page.html"), "page").expect("a file");
    let pattern = |text: &str| brisk_rules::GroupPattern::new(text).expect("a pattern");
    let first = PathRewrite::new(pattern("^/old/(.*)$"), "/docs/{1}").expect("a template");
    let mut all = PathRewrite::new(pattern("^.*$"), "{0}").expect("a template");
    all.add("{0}.html").expect("a template");
    let settings = StaticSettings { rewrite: Some([first, all].into()), ..StaticSettings::new(site.root()) };
    site.files = StaticFiles::new(&settings, &RoutePath::Prefix("/".to_owned()));
    for (target, expected) in [
        ("/docs/page", 200),
        ("/docs/page.html", 200),
        ("/old/page.html", 200),
        // The first expression that matches decides.
        ("/old/page", 404),
        ("/docs/", 200),
        ("/docs", 307),
        ("/none", 404),
        ("/.env", 404),
    ] {
        assert_eq!(site.status(target).await, expected, "{target}");
    }
    assert_eq!(text(site.get("/docs/page", &[]).await).await, "page");
    let slash = site.get("/docs?a=1", &[]).await;
    assert_eq!(slash.headers()["location"], "/docs/?a=1", "the query of the request");
}

#[tokio::test]
async fn a_file_at_a_later_path_precedes_the_redirect_of_a_folder() {
    let mut site = site();
    fs::write(site.root().join("docs.html"), "file").expect("a file");
    let pattern = brisk_rules::GroupPattern::new("^.*$").expect("a pattern");
    let mut all = PathRewrite::new(pattern, "{0}").expect("a template");
    all.add("{0}.html").expect("a template");
    let settings = StaticSettings { rewrite: Some([all].into()), ..StaticSettings::new(site.root()) };
    site.files = StaticFiles::new(&settings, &RoutePath::Prefix("/".to_owned()));
    assert_eq!(text(site.get("/docs", &[]).await).await, "file");
    assert_eq!(text(site.get("/docs/", &[]).await).await, "<p>");
    fs::remove_file(site.root().join("docs.html")).expect("a file");
    assert_eq!(site.status("/docs").await, 307);
}
