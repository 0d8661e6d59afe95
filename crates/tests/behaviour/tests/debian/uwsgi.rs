//! Django on uWSGI, over the protocol uwsgi.

use std::fs;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::uwsgi::Uwsgi;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A project in one file.
const PROJECT: &str = r"
import hashlib
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(DEBUG=False, SECRET_KEY='x' * 50, ALLOWED_HOSTS=['site.test'], ROOT_URLCONF=__name__,
    MIDDLEWARE=['django.middleware.common.CommonMiddleware'], DATA_UPLOAD_MAX_MEMORY_SIZE=None)

@csrf_exempt
def about(request, **parts):
    names = ['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_METHOD', 'CONTENT_LENGTH', 'SERVER_PROTOCOL', 'REMOTE_ADDR',
        'SERVER_NAME', 'HTTP_COOKIE', 'HTTP_PROXY', 'APP_ENV', 'wsgi.url_scheme']
    body = request.body
    response = JsonResponse({'environ': {name: request.META.get(name) for name in names}, 'url': request.build_absolute_uri(),
        'length': len(body), 'sum': hashlib.md5(body).hexdigest(), 'post': request.POST.get('b')})
    response.set_cookie('a', '1', secure=True)
    response.set_cookie('b', '2')
    return response

@csrf_exempt
def upload(request):
    file = request.FILES['file']
    return HttpResponse(f'{file.name} {file.size}')

urlpatterns = [
    path('about/', about), path('pages/<str:name>/', about), path('upload/', upload),
    path('redirect/', lambda request: HttpResponseRedirect('/about/')),
    path('none/', lambda request: HttpResponse(status=204)),
    path('large/', lambda request: StreamingHttpResponse('x' * 1024 for _ in range(3000))),
]
application = get_wsgi_application()
";

fn site(server: &Uwsgi, keys: &str) -> Site {
    Site::with(&(proxy_to(&[&server.url()]) + keys))
}

fn about(site: &Site, options: &[&str], path: &str) -> Value {
    let text = site.curl(options, path).text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn django_gets_requests_and_bodies_over_uwsgi() {
    let mut server = Uwsgi::start(PROJECT);
    let site = site(&server, "cgi = { params = { APP_ENV = \"{request.method}\" } }\n");
    let folder = TempDir::with_prefix("brisk-test-upload-").expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "y".repeat(4_000_000)).expect("a file");
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let found =
            about(&site, &[version, "-H", "Cookie: a=1", "-H", "Proxy: evil"], "/pages/a%20b/?c=%C3%A4");
        let environ = &found["environ"];
        for (name, value) in [
            ("SCRIPT_NAME", json!("")),
            ("PATH_INFO", json!("/pages/a b/")),
            ("QUERY_STRING", json!("c=%C3%A4")),
            ("REQUEST_METHOD", json!("GET")),
            ("SERVER_PROTOCOL", json!(protocol)),
            ("REMOTE_ADDR", json!("127.0.0.1")),
            ("SERVER_NAME", json!(NAME)),
            ("HTTP_COOKIE", json!("a=1")),
            ("HTTP_PROXY", Value::Null),
            ("APP_ENV", json!("GET")),
            ("wsgi.url_scheme", json!("https")),
        ] {
            assert_eq!(environ[name], value, "{name}");
        }
        assert_eq!(found["url"], site.url("/pages/a%20b/?c=%C3%A4"));
        let found = about(&site, &[version, "--data", "a=1&b=x%20y"], "/about/");
        assert_eq!((&found["post"], &found["environ"]["CONTENT_LENGTH"]), (&json!("x y"), &json!("11")));
        let data = format!("@{}", file.display());
        for framing in ["Expect:", "Transfer-Encoding: chunked"] {
            let sent = [version, "-H", framing, "-H", "Content-Type: a/b", "--data-binary", &data];
            assert_eq!(about(&site, &sent, "/about/")["length"], 4_000_000, "{framing}");
        }
        let form = format!("file=@{};filename=y.txt", file.display());
        assert_eq!(site.curl(&[version, "--form", &form], "/upload/").success(), "y.txt 4000000");
        assert_eq!(site.curl(&[version], "/large/").success().len(), 3_072_000);
        for (path, status, line) in [
            ("/about", " 301", "location: /about/"),
            ("/redirect/", " 302", "location: /about/"),
            ("/none/", " 204", ""),
            ("/missing/", " 404", "content-type: text/html"),
            ("/about/", " 200", "set-cookie: b=2"),
        ] {
            let head = site.curl(&[version, "--head"], path).success().to_ascii_lowercase();
            let (first, rest) = head.split_once("\r\n").expect("a head");
            assert!(first.contains(status) && rest.contains(line), "{path}: {head}");
        }
    }
    server.restart();
    assert_eq!(about(&site, &[], "/about/")["length"], 0);
}

#[test]
fn a_uwsgi_server_is_checked_by_its_protocol() {
    let server = Uwsgi::start(PROJECT);
    // The first check is made at once.
    let check = |path: &str| {
        let more = "interval = \"30s\", timeout = \"30s\", host = \"site.test\", unhealthy_after = 1";
        format!("health = {{ path = \"{path}\", {more} }}\n")
    };
    let healthy = site(&server, &check("/about/"));
    assert_eq!(about(&healthy, &[], "/about/")["length"], 0);
    let unhealthy = site(&server, &check("/missing/"));
    unhealthy.brisk.log_with("status 404");
    assert!(!healthy.brisk.process().stderr().contains("is down"));
}
