//! Syntax errors, unknown kinds and keys, and wrong types.

use super::*;

#[test]
fn all_syntax_errors_of_all_files_are_reported() {
    let loaded = load_documents([
        Document::new("b.toml", "[[service]]\nname = \n"),
        Document::new("a.toml", "[[service]\nname = \"a\"\n[[service]]\nname = \"b\nports = 1 2\n"),
    ]);
    let lines = lines(&loaded);
    assert!(lines.len() >= 4, "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with("error[IM0101]")), "{lines:#?}");
    for spot in ["a.toml:1:", "a.toml:4:", "a.toml:5:", "b.toml:2:"] {
        assert!(lines.iter().any(|line| line.contains(spot)), "{spot} in {lines:#?}");
    }
    assert!(loaded.specification.is_none());
}

#[test]
fn table_beside_a_syntax_error_is_still_checked() {
    let text = "[[service]]\nname = \n\n[[service]]\nname = \"b\"\nnamespce = \"x\"\n";
    let codes: Vec<u16> = load_one(text).findings.iter().map(|finding| finding.code.0).collect();
    assert_eq!(codes, [101, 102]);
}

#[test]
fn names_in_a_broken_document_are_not_reported_missing() {
    let broken = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = http }]\n";
    let split = "[[traffic_split]]\nname = \"s\"\nservice = \"store\"\n\
                 backends = [{ service = \"store\", weight = 1 }, { service = \"ghost\", weight = 1 }]\n";
    let loaded = load_documents([Document::new("a.toml", broken), Document::new("b.toml", split)]);
    let missing: Vec<&Finding> =
        loaded.findings.iter().filter(|finding| finding.code == crate::codes::NOT_FOUND).collect();
    assert_eq!(missing.len(), 1, "{missing:#?}");
    assert!(missing[0].message.contains("ghost"));
}

#[test]
fn unknown_key_is_reported_with_the_nearest_known_one() {
    assert_eq!(
        finding("[[service]]\nname = \"a\"\nservice_acount = \"b\"\n"),
        "error[IM0102]: a service has no key `service_acount` (p.toml:3:1) / did you mean `service_account`?"
    );
    assert_eq!(
        finding("[[service]]\nname = \"a\"\ncolour = \"b\"\n"),
        "error[IM0102]: a service has no key `colour` (p.toml:3:1) / its keys are `name`, \
         `namespace`, `service_account`, `ports`, `mode`, `visibility`, \
         `escaped_slashes`, `endpoints`, `external`, `hostname`, `resolution`, `state`, \
         `max_connection_duration`, `health`, `subsets` and `upstreams`"
    );
}

/// SMI 8.
#[test]
fn unknown_kind_is_reported_and_its_names_are_not_missing() {
    let text = "[[servcie]]\nname = \"a\"\n[[traffic_split]]\nname = \"s\"\nservice = \"a\"\n\
                backends = [{ service = \"a\", weight = 1 }]\n";
    assert_eq!(
        finding(text),
        "error[IM0102]: there is no kind `servcie` (p.toml:1:3) / did you mean `service`?"
    );
    assert!(finding("[[TrafficTarget]]\n").ends_with("did you mean `traffic_target`?"));
    let reported = finding("[[udp_route]]\n");
    assert!(reported.starts_with("error[IM0108]: kind `udp_route` is not served"), "{reported}");
    assert!(reported.ends_with("UDP has no handshake in which to verify a caller"), "{reported}");
    assert!(
        finding("[[mesh_config]]\n")
            .starts_with("error[IM0108]: kind `mesh_config` is not served by")
    );
}

#[test]
fn table_in_place_of_an_array_of_tables_is_reported() {
    assert_eq!(
        finding("[service]\nname = \"a\"\n"),
        "error[IM0104]: `service` must be an array of tables, not a table (p.toml:1:1) / write `[[service]]`"
    );
    assert_eq!(
        finding("service = 1\n"),
        "error[IM0104]: `service` must be an array, not an integer (p.toml:1:11)"
    );
}

#[test]
fn repeated_single_brackets_are_one_finding() {
    let table = |name: &str| {
        format!(
            "[service]\nname = \"{name}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n\
             [service.endpoints]\nstatic = [{{ address = \"10.0.0.5\", port = 8080 }}]\n"
        )
    };
    let rest = "[[traffic_target]]\nname = \"t\"\ndestination = { name = \"a\" }\n\
                sources = [{ name = \"b\" }, { name = \"c\" }]\nrules = [{ kind = \"TCPRoute\", name = \"r\" }]\n\
                [[tcp_route]]\nname = \"r\"\n";
    let three = [table("a"), table("b"), table("c"), rest.to_owned()].concat();
    assert_eq!(
        lines(&load_one(&three)),
        ["error[IM0104]: `service` must be an array of tables, not a table (p.toml:1:1) / \
          write `[[service]]`, here and in 2 more places"]
    );
    // A wrong table before or after a correct one.
    let right = table("a").replace("[service]", "[[service]]");
    for (text, line) in [(table("b") + &right, 1), (right + &table("b"), 6)] {
        assert_eq!(
            lines(&load_one(&text)),
            [format!(
                "error[IM0104]: `service` must be an array of tables, not a table (p.toml:{line}:1) / \
                 write `[[service]]`"
            )]
        );
    }
    // A separate mistake is reported, too.
    let typo = table("a") + &table("b") + "[[tcp_route]]\nname = \"r\"\nname = \"s\"\n";
    let typo = lines(&load_one(&typo));
    assert_eq!(typo.len(), 2, "{typo:#?}");
    assert!(typo[1].starts_with("error[IM0101]: duplicate key (p.toml:13:1)"), "{typo:#?}");
}

#[test]
fn unquoted_string_is_reported_with_location_and_quoted_form() {
    assert_eq!(
        finding("[[service]]\nname = store\n"),
        "error[IM0101]: `store` is a string without quotes (p.toml:2:8) / strings are quoted: write \
         `name = \"store\"`"
    );
}

#[test]
fn invalid_name_is_reported_with_the_reason() {
    assert_eq!(
        finding("[[service]]\nname = \"Book_Store\"\n"),
        "error[IM0106]: `name` may only have `a-z`, `0-9` and `-`: `Book_Store` (p.toml:2:8) / \
         did you mean `book-store`?"
    );
}
