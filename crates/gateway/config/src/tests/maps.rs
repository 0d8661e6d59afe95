//! Variables in header rules, and tables.

use super::*;

fn with(rules: &str, map: &str) -> String {
    format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{}}\n{rules}{map}")
}

#[test]
fn a_value_with_variables_refers_to_tables() {
    let rules = "response_headers = { set = { A = \"{map.a}\", B = \"b\" } }\n";
    let map = "[map.a]\nfrom = \"{request.host}\"\nvalues = { x = \"y\" }\n";
    let route = &accepted(&with(rules, map)).settings.service.hosts[0].routes[0];
    assert_eq!(route.headers.responses.as_ref().map(|rules| rules.set.len()), Some(2));
}

#[test]
fn fingerprints_of_clients_are_computed_only_for_templates_that_have_them() {
    let computed = |text: &str| {
        let tls = accepted(text).settings.tls;
        (tls.ja4, tls.client_fingerprints)
    };
    let header = |value: &str| with(&format!("response_headers = {{ set = {{ A = \"{value}\" }} }}\n"), "");
    let redirect = format!(
        "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nredirect = \"/x?{{tls.client.fingerprint}}\"\n"
    );
    let limit = with("limits = [\"a\"]\n", "[limit.a]\nrate = \"1/s\"\nby = \"{ja4}\"\n");
    let map = with("", "[map.a]\nfrom = \"{ja4}\"\nvalues = { x = \"y\" }\n");
    let log = format!("{LISTENER}[access_log]\nformat = {{ template = '{{ja4}}' }}\n{HOST}");
    for (text, expected) in [
        (&header("{tls.version}"), (false, false)),
        (&header("{ja4}"), (true, false)),
        (&header("{tls.client.fingerprint}{ja4}"), (true, true)),
        (&redirect, (false, true)),
        (&limit, (true, false)),
        (&map, (true, false)),
        (&log, (true, false)),
    ] {
        assert_eq!(computed(text), expected, "{text}");
    }
}

#[test]
fn wrong_variables_and_tables_are_refused() {
    let rule = |value: &str| format!("response_headers = {{ set = {{ A = \"{value}\" }} }}\n");
    let place = "brisk.toml:8:34: host[0].route[0].response_headers.set.A:";
    refused(
        &with(&rule("{client.adress}"), ""),
        &format!("{place} {{client.adress}} is no variable; did you mean {{client.address}}?"),
    );
    refused(&with(&rule("{map.x}"), ""), &format!("{place} there is no table [map.x]; no table is defined"));
    refused(
        &with("", "[map.a]\nfrom = \"{response.status} {request.host}\"\nvalues = { x = \"y\" }\n"),
        "brisk.toml:9:8: map.a.from: has values of the request and of the response: use those of one of the two",
    );
    let of_response = "[map.a]\nfrom = \"{response.header.x-a}\"\nvalues = { x = \"y\" }\n";
    accepted(&with(&rule("{map.a} {response.status}"), of_response));
    refused(
        &with("", of_response).replace("respond = {}", "redirect = \"/{map.a}\""),
        "brisk.toml:7:12: host[0].route[0].redirect: \"/{map.a}\" is no place to redirect to: a table of the response is known with \
         the response of an upstream only",
    );
    refused(
        &with("", "[map.a]\nfrom = \"{request.host}\"\n"),
        "brisk.toml:8:1: map.a: a table needs `values`, `networks` or `patterns`",
    );
    refused(
        &with("", "[map.a]\nfrom = \"{request.host}\"\npatterns = [{ regex = \"(\", value = \"\" }]\n"),
        "brisk.toml:10:23: map.a.patterns[0].regex: \"(\" is not a usable regular expression: unclosed group",
    );
    let groups = |value: &str| {
        format!(
            "[map.a]\nfrom = \"{{request.host}}\"\npatterns = [{{ regex = \"^(.)\", value = \"{value}\" }}]\n"
        )
    };
    accepted(&with("", &groups("x{1}")));
    refused(
        &with("", &groups("x{2}")),
        "brisk.toml:10:39: map.a.patterns[0].value: the expression has no group {2}; write \"{{\" for a brace before a name",
    );
    refused(
        &with("", &groups("x{1}")).replace("respond = {}", "redirect = \"/{map.a}\""),
        "brisk.toml:7:12: host[0].route[0].redirect: \"/{map.a}\" is no place to redirect to: a client could choose the host by a \
         table whose results have groups: use one with fixed results",
    );
}

#[test]
fn results_of_tables_have_variables_and_other_tables() {
    let rule = "response_headers = { set = { A = \"{map.a}\" } }\n";
    let tables = "[map.a]\nfrom = \"{request.host}\"\nvalues = { x = \"{map.b} {request.method}\" }\ndefault = \"{request.scheme}\"\n\
                  [map.b]\nfrom = \"{map.c}\"\nvalues = { y = \"z\" }\n\
                  [map.c]\nfrom = \"{request.path}\"\npatterns = [{ regex = \"^/\", value = \"{request.query}\" }]\n";
    accepted(&with(rule, tables));
    accepted(&with(
        rule,
        "[map.a]\nfrom = \"{client.address}\"\nnetworks = { \"10.0.0.0/8\" = \"a\", \"::1\" = \"{request.host}\" }\n",
    ));
    refused(
        &with("", "[map.a]\nfrom = \"{client.address}\"\nnetworks = { \"10.0.0.0/33\" = \"a\" }\n"),
        "brisk.toml:10:30: map.a.networks.\"10.0.0.0/33\": \"10.0.0.0/33\" is not a network: write one as \"10.0.0.0/8\", \
         \"2001:db8::/32\" or \"192.0.2.1\"",
    );
    refused(
        &with(
            "",
            "[map.a]\nfrom = \"{client.address}\"\nnetworks = { \"10.0.0.0/8\" = \"a\", \"10.1.2.3/8\" = \"b\" }\n",
        ),
        "brisk.toml:10:49: map.a.networks.\"10.1.2.3/8\": this network has a result already: keep one",
    );
    let table =
        |result: &str| format!("[map.a]\nfrom = \"{{request.host}}\"\nvalues = {{ x = \"{result}\" }}\n");
    refused(
        &with("", &table("{map.a}")),
        "brisk.toml:8:1: map.a: refers to itself by other tables, or to more than 8 of them",
    );
    refused(
        &with("", &table("{response.status}")),
        "brisk.toml:10:16: map.a.values.x: has values of the request and of the response: use those of one of the two",
    );
    refused(
        &with("", &table("{request.path}")).replace("respond = {}", "redirect = \"/{map.a}\""),
        "brisk.toml:7:12: host[0].route[0].redirect: \"/{map.a}\" is no place to redirect to: a client could choose the host by a \
         table whose results have variables: use one with fixed results",
    );
}

#[test]
fn results_of_expressions_have_groups_or_variables() {
    let table = |regex: &str, result: &str| {
        let head = "[map.a]\nfrom = \"{request.host}\"\npatterns = [{";
        with("", &format!("{head} regex = \"{regex}\", value = \"{result}\" }}]\n"))
    };
    for (regex, result) in [
        ("^a", "{user}"),
        ("^a", "{ja4} {request.host}"),
        ("^(?P<user>.)", "{user}"),
        ("^(?<user>.)", "{user}{1}"),
        ("^(?P<a.b>.)", "{a.b}"),
        ("^a", "{{user} {{1}"),
    ] {
        accepted(&table(regex, result));
    }
    let place = |regex: &str| format!("brisk.toml:10:{}: map.a.patterns[0].value:", 35 + regex.len());
    for (regex, result, reason) in [
        ("^(.)", "{1}.{request.host}", "has groups and variables: use one of both"),
        ("^(?P<user>.)", "{user} {ja4}", "has groups and variables: use one of both"),
        ("^(.)", "{client.adress}", "{client.adress} is no variable; did you mean {client.address}?"),
    ] {
        refused(&table(regex, result), &format!("{} {reason}", place(regex)));
    }
    let fingerprint = accepted(&table("^a", "{ja4}")).settings.tls.ja4;
    assert!(fingerprint);
}

#[test]
fn tables_that_multiply_are_refused() {
    let level = |number: u32, result: &str| {
        format!(
            "[map.m{number}]\nfrom = \"{{request.host}}\"\nvalues = {{ x = \"{result}\", y = \"{result}\" }}\n"
        )
    };
    let tables = |count: usize| {
        let next = |number| level(number, &format!("{{map.m{}}}", number - 1).repeat(count));
        level(0, "z") + &(1..=7).map(next).collect::<String>()
    };
    accepted(&with("", &tables(2)));
    let message = checked(folder().path(), &with("", &tables(9))).expect_err("too many");
    assert!(message.contains("map.m4: needs more than 1000 look-ups in other tables"), "{message}");
    assert!(!message.contains("map.m3:"), "{message}");
}
