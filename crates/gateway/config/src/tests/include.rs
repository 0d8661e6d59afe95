//! `include`: several files as one, and messages with the file of each mistake.

use super::*;

fn written(files: &[(&str, &str)]) -> TempDir {
    let folder = folder();
    fs::create_dir(folder.path().join("conf.d")).expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

#[track_caller]
fn names(resolved: &Resolved) -> Vec<&str> {
    resolved.settings.service.hosts.iter().map(|host| host.tls.names[0].as_str()).collect()
}

#[test]
fn files_are_joined_in_the_order_of_their_names() {
    let leaf = TestCa::new().server(&["a.localhost", "b.localhost", "c.localhost", "d.localhost"]).issue();
    let own = |name: &str| {
        let (chain, key) = (&leaf.chain, &leaf.key);
        format!(
            "[[host]]\nnames = [\"{name}.localhost\"]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
        )
    };
    let host = |name: &str| own(name) + "[[host.route]]\npath = \"/\"\n";
    let app = "upstream = \"app\"\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    let other = "upstream = \"other\"\n[upstream.other]\nservers = [\"http://127.0.0.1:2\"]\n";
    let folder = written(&[
        ("conf.d/10.toml", &(host("b") + app)),
        ("conf.d/9.toml", &(host("c") + other)),
        ("conf.d/.8.toml", "unread"),
        ("conf.d/8.toml~", "unread"),
        ("last.toml", &(host("d") + "respond = {}\n")),
    ]);
    let main = format!("include = [\"last.toml\", \"conf.d/*.toml\", \"*.toml\"]\n{LISTENER}{}", own("a"));
    let resolved = checked(folder.path(), &main).expect("settings");
    assert_eq!(names(&resolved), ["a.localhost", "d.localhost", "b.localhost", "c.localhost"]);
    for file in ["brisk.toml", "last.toml", "conf.d/10.toml", "conf.d/9.toml", "conf.d/*.toml", "*.toml"] {
        assert!(resolved.settings.server.files.contains(&folder.path().join(file)), "{file}");
    }
    assert_eq!(resolved.line_of_route(2, 0), Some((4, Some(folder.path().join("conf.d/10.toml")))));
    assert_eq!(resolved.line_of_route(0, 0), None);
    // A folder without matching files is no mistake.
    let main = format!("include = \"conf.d/*.none\"\n{LISTENER}{}", own("a"));
    assert_eq!(names(&checked(folder.path(), &main).expect("settings")), ["a.localhost"]);
}

#[test]
fn mistakes_have_the_file_in_which_they_are() {
    let folder = written(&[
        (
            "conf.d/a.toml",
            "[[host]]\nnames = [\"b.localhost\"]\nroutes = 1\nhsts = { max_age = \"${BRISK_TEST_NO_AGE:-x}\" }\n",
        ),
        ("conf.d/b.toml", "# é\n[sever]\n"),
    ]);
    let main = format!("include = \"conf.d/*.toml\"\n{LISTENER}workers = -1\n{HOST}");
    assert_eq!(
        checked(folder.path(), &main).expect_err("mistakes"),
        "brisk.toml:4:11: server.workers: expected a whole number from 0 to 65535, found the number -1\n\
         conf.d/a.toml:3:1: host[1].routes: unknown key; did you mean `route`?\n\
         conf.d/a.toml:4:20: host[1].hsts.max_age: \"x\" is not a duration: write a whole number and a unit, as \"500ms\", \"10s\" or \"180d\"\n\
         conf.d/b.toml:2:2: sever: unknown key; did you mean `server`?"
    );
}

#[test]
fn an_error_has_the_files_whose_correction_may_end_it() {
    let folder = written(&[("wrong.toml", "[sever]\n"), ("unread.toml", "")]);
    let path = |name: &str| folder.path().join(name);
    for (include, expected) in [
        ("[\"wrong.toml\", \"conf.d/*.toml\"]", &["brisk.toml", "wrong.toml", "conf.d/*.toml"][..]),
        ("[\"missing.toml\", \"unread.toml\"]", &["brisk.toml", "missing.toml"]),
        ("\"conf.d/[ab].toml\"", &["brisk.toml"]),
    ] {
        fs::write(path("brisk.toml"), format!("include = {include}\n{LISTENER}{HOST}")).expect("written");
        let error = check(&path("brisk.toml"), &Running::default()).expect_err(include);
        assert_eq!(error.files(), expected.iter().map(|name| path(name)).collect::<Vec<_>>(), "{include}");
    }
}

#[test]
fn a_table_or_key_of_two_files_names_both_places() {
    let folder = written(&[
        (
            "conf.d/a.toml",
            "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n[server.limits]\nhead_size = \"8KiB\"\n",
        ),
        ("conf.d/b.toml", "host = 1\n[upstream.app]\nservers = []\n"),
    ]);
    let main = format!("include = \"conf.d/*.toml\"\n{LISTENER}{HOST}");
    let at = folder.path().display().to_string();
    assert_eq!(
        checked(folder.path(), &main).expect_err("mistakes").replace(&format!("{at}/"), ""),
        "conf.d/a.toml:3:2: server: brisk.toml:2:2 has it already: write it in one file only\n\
         conf.d/b.toml:1:1: host: brisk.toml:4:3 has it already: write it in one file only\n\
         conf.d/b.toml:2:11: upstream.app: conf.d/a.toml:1:11 has it already: write it in one file only"
    );
}

#[test]
fn wrong_includes_are_refused_with_the_reason() {
    let nested = "include = \"more.toml\"\n";
    let folder = written(&[
        ("nested.toml", nested),
        ("broken.toml", "[[host]\n"),
        ("nginx.toml", "server {\n  listen 80;\n}\n"),
    ]);
    fs::write(folder.path().join("latin.toml"), b"# \xe9\n").expect("a file");
    for (include, message) in [
        (
            "\"nested.toml\"",
            "nested.toml:1:11: include: only brisk.toml may include files: name them in its `include`",
        ),
        ("\"broken.toml\"", "broken.toml:1:8: not valid TOML: "),
        ("\"nginx.toml\"", "nginx.toml:1:1: this is the syntax of nginx, but brisk reads TOML"),
        ("\"latin.toml\"", "latin.toml:1:3: not UTF-8: save the file as UTF-8"),
        ("\"missing.toml\"", "missing.toml: cannot be read: No such file or directory"),
        ("\"none/*.toml\"", "brisk.toml:1:11: include: cannot read the folder of none/*.toml: No such file"),
        (
            "\"conf.d/*/a.toml\"",
            "brisk.toml:1:11: include: \"conf.d/*/a.toml\" has a pattern that is not known: write one `*` in",
        ),
        (
            "[\"conf.d/[ab].toml\"]",
            "brisk.toml:1:12: include[0]: \"conf.d/[ab].toml\" has a pattern that is not known",
        ),
        (
            "[\"nested.toml\", 7]",
            "brisk.toml:1:27: include[1]: expected a path in quotes or a list of them, as in include = ",
        ),
        (
            "\"${BRISK_TEST_NO_NAME}\"",
            "brisk.toml:1:11: include: the environment has no variable BRISK_TEST_NO_NAME",
        ),
    ] {
        let said =
            checked(folder.path(), &format!("include = {include}\n{LISTENER}{HOST}")).expect_err(include);
        assert!(said.starts_with(message), "{include}: {said}");
    }
    refused(
        &format!("{LISTENER}include = \"conf.d/*.toml\"\n{HOST}"),
        "brisk.toml:3:1: server.include: unknown key; `include` is a term of nginx: write include = \"conf.d/*.toml\" at the top \
         of the file, before the first section",
    );
}
