//! Caddyfiles and the results of `brisk import caddy`, run side by side with the same requests.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use brisk_behaviour::site::setup;
use brisk_testkit::caddy::Caddy;
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;
use tempfile::TempDir;

/// Headers of responses that are compared.
const COMPARED: [&str; 5] = ["cache-control", "location", "x-h", "x-powered-by", "www-authenticate"];

/// Headers of requests that are compared at the upstream.
const FORWARDED: [&str; 9] = [
    "authorization",
    "cookie",
    "host",
    "remote-user",
    "x-a",
    "x-b",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Sites with their requests: method, path, and a header.
const CASES: [(&str, &str); 5] = [
    (
        "http://127.0.0.1:PORT {
	root * SRV
	@secret path /admin/* *.key
	redir /old /new permanent
	redir /go https://x.example{uri}
	handle @secret {
		respond \"no\" 403
	}
	handle_path /api/* {
		reverse_proxy ONE {
			header_up X-Real-IP {remote_host}
			header_up X-A {method}
			header_down -X-Powered-By
		}
	}
	handle /two/* {
		reverse_proxy TWO
	}
	handle {
		try_files {path} /index.html
		file_server
	}
	header X-H 1
}",
        "GET /
GET /page.html
GET /missing/path
GET /admin/x
GET /ADMIN/x
GET /a/b.KEY
GET /old
GET /go?a=b
GET /api/users?x=1
GET /api/
GET /two/x
GET /api/x X-Forwarded-For: 192.0.2.9
POST /api/form",
    ),
    (
        "http://127.0.0.1:PORT {
	@post method POST
	respond @post \"posted\" 201
	@parameter query a=1
	respond @parameter \"parameter\"
	@header header X-K yes
	respond @header \"header\"
	@user path_regexp u ^/u/([0-9]+)/(.*)$
	redir @user /user/{re.u.2}?id={re.u.1}
	respond /json `{\"a\": 1}`
	respond /text \"hello {method} {path}\"
	@closed not path /open/*
	respond @closed 401
	respond \"open\"
}",
        "GET /
POST /open/
GET /open/
GET /open/?a=1
GET /OPEN/x
GET /closed X-K: yes
GET /u/7/photos
GET /json
GET /text",
    ),
    (
        "http://127.0.0.1:PORT {
	basic_auth /private/* {
		bob $2a$14$8sgwzq4Tg3kZ04TquWha6ObaulxB74KX92mMYShHZFOpUl7/EEsz6
	}
	forward_auth /auth/* ONE {
		uri /verify?x=1
		copy_headers Remote-User
	}
	request_header -X-A
	request_header X-B set
	reverse_proxy TWO
}",
        "GET /private/x
GET /private/x Authorization: Basic Ym9iOnNlY3JldA==
GET /private/x Authorization: Basic Ym9iOndyb25n
GET /PRIVATE/x
GET /auth/x
GET /auth/x X-Allow: yes
GET /open X-A: 1
GET /open Cookie: a=b",
    ),
    (
        "http://127.0.0.1:PORT {
	handle_path /app/* {
		uri strip_prefix /v1
		reverse_proxy ONE
	}
	handle /fixed/* {
		rewrite * /const?x=1
		reverse_proxy TWO
	}
	handle /kept/* {
		rewrite * /const
		reverse_proxy TWO
	}
	handle /add/* {
		rewrite * /base{uri}
		reverse_proxy TWO
	}
	handle /html/* {
		uri strip_suffix .html
		reverse_proxy TWO
	}
	handle /groups/* {
		@named path_regexp n ^/groups/([a-z]+)/(.*)$
		rewrite @named /{re.n.2}/{re.n.1}
		reverse_proxy TWO
	}
	handle /host/* {
		reverse_proxy TWO {
			header_up Host h.example
			header_up -X-A
		}
	}
	handle_path /files/* {
		root * SRV
		file_server
	}
}",
        "GET /app/v1/x
GET /app/x
GET /fixed/a?z=1
GET /kept/a?z=1
GET /add/a?z=1
GET /html/a.html
GET /html/a
GET /groups/ab/cd
GET /groups/AB/cd
GET /host/a?b=c X-A: 1
GET /files/page.html
GET /files/sub/inner.txt
GET /none",
    ),
    (
        "(end) {
	respond {args[0]} {args[1]}
}
http://127.0.0.1:PORT {
	@local remote_ip 127.0.0.0/8
	@away not remote_ip 127.0.0.0/8
	handle /in/* {
		respond @away 403
		import end inside 200
	}
	handle /api/v1/* {
		respond \"v1\"
	}
	handle /api/* {
		respond \"api\"
	}
	handle /api/v1/special {
		respond \"special\"
	}
	handle_path /deep/* {
		handle /a/* {
			respond \"a\"
		}
		@b path /b/* /c
		respond @b \"b\" 202
		respond \"deep\"
	}
	handle {
		import end rest 404
	}
}",
        "GET /in/x
GET /api/v1/x
GET /api/v2
GET /api/v1/special
GET /api/v1/special/
GET /deep/a/x
GET /deep/b/x
GET /deep/c
GET /deep/x
GET /zzz",
    ),
];

/// The response of a server, and the requests that its upstreams received because of it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    forwarded: Vec<String>,
}

/// An application that names itself, and permits requests with a header.
fn application(name: &'static str) -> Origin {
    Origin::answering(move |request, stream| {
        let is_question = request.head.line.contains(" /verify");
        let status = if is_question && request.header("x-allow") != Some("yes") { 401 } else { 200 };
        let head = "X-Powered-By: test\r\nRemote-User: anna\r\nContent-Type: text/plain\r\n";
        write!(stream, "HTTP/1.1 {status} Status\r\n{head}Content-Length: {}\r\n\r\n{name}", name.len())
    })
}

fn folder() -> TempDir {
    let folder = TempDir::with_prefix("brisk-test-srv-").expect("a temporary folder");
    fs::create_dir(folder.path().join("sub")).expect("a folder");
    for (name, text) in [("index.html", "start"), ("page.html", "page"), ("sub/inner.txt", "inner")] {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

fn request(server: SocketAddr, line: &str) -> Message {
    let mut words = line.splitn(3, ' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let header = words.next().map(|header| format!("{header}\r\n")).unwrap_or_default();
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    let mut stream = TcpStream::connect(server).expect("a server");
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}{header}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("a request");
    Message::read_response(&mut stream).expect("a response")
}

fn outcome(server: SocketAddr, line: &str, applications: &[&Origin]) -> Outcome {
    let counts: Vec<_> = applications.iter().map(|origin| origin.requests().len()).collect();
    let response = request(server, line);
    let named = |head: &Head, names: &[&str]| -> Vec<(String, String)> {
        let own = |name: &&&str| head.header(name).map(|value| ((**name).to_owned(), value.to_owned()));
        names.iter().filter_map(|name| own(&name)).collect()
    };
    let headers = named(&response.head, &COMPARED)
        .into_iter()
        // brisk states the character set, and that a refusal is not to be stored.
        .map(|(name, value)| (name, value.replace(", charset=\"UTF-8\"", "")))
        .filter(|(name, value)| name != "cache-control" || value != "no-store")
        .collect();
    let new = applications.iter().zip(counts).flat_map(|(origin, count)| origin.requests().split_off(count));
    let forwarded =
        new.map(|request| format!("{} {:?}", request.head.line, named(&request.head, &FORWARDED))).collect();
    let status = response.status();
    // Pages for errors without a text are each server's own.
    let body = if status >= 400 && !["no", "rest"].contains(&&*response.text()) {
        String::new()
    } else {
        response.text()
    };
    Outcome { status, headers, body, forwarded }
}

#[test]
fn imported_sites_respond_as_in_caddy() {
    for (site, requests) in CASES {
        let (srv, one, two) = (folder(), application("one"), application("two"));
        let here = |text: &str| {
            text.replace("SRV", &srv.path().display().to_string())
                .replace("ONE", &one.address().to_string())
                .replace("TWO", &two.address().to_string())
        };
        let Some(caddy) = Caddy::start(&format!("{{\n\tadmin off\n}}\n{}", here(site))) else { return };
        let input = TempDir::with_prefix("brisk-test-import-").expect("a temporary folder");
        let path = input.path().join("Caddyfile");
        fs::write(&path, here(site).replace("PORT", "8080")).expect("a file");
        let imported = brisk_import::caddy(&path).expect("an import");
        assert_eq!((imported.files.len(), imported.report.counts()[3]), (1, 0), "{}", imported.report);
        let text = &imported.files[0];
        let users = text
            .lines()
            .filter_map(|line| line.strip_prefix("# bob:"))
            .map(|hash| format!("bob:{hash}\n"))
            .collect::<Vec<_>>()
            .concat();
        fs::create_dir(input.path().join(".brisk")).expect("a folder");
        let file = input.path().join(".brisk/users-1");
        fs::write(&file, users).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file");
        let text =
            text.replace("http = [\"0.0.0.0:8080\", \"[::]:8080\"]", "http = [\"127.0.0.1:0\"]\nworkers = 2");
        let brisk = setup().config(&text).start();
        for line in requests.lines() {
            let applications = [&one, &two];
            let theirs = outcome(caddy.address(), line, &applications);
            let ours = outcome(brisk.http(), line, &applications);
            assert_eq!(ours, theirs, "{line} (left: brisk, right: Caddy)\n{text}");
        }
    }
}
