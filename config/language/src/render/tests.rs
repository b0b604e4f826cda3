use super::*;
use crate::policy::load_documents;

fn rendered(documents: &[Document]) -> String {
    let loaded = load_documents(documents.to_vec());
    render(&loaded.findings, &loaded.documents, false)
}

#[test]
fn finding_is_rendered_with_line_label_and_help() {
    let document =
        Document::new("shop.toml", "[[service]]\nname = \"a\"\nservice_acount = \"b\"\n");
    assert_eq!(
        rendered(&[document]),
        "\
error[IM0102]: a service has no key `service_acount`
 --> shop.toml:3:1
  |
3 | service_acount = \"b\"
  | ^^^^^^^^^^^^^^ unknown key
  |
  = help: did you mean `service_account`?
"
    );
}

#[test]
fn related_location_is_rendered_from_its_own_file() {
    let first = Document::new("a.toml", "# first\n[[service]]\nname = \"store\"\n");
    let second = Document::new("b.toml", "[[service]]\nname = \"store\"\n");
    assert_eq!(
        rendered(&[first, second]),
        "\
error[IM0202]: service `store` is defined twice in namespace `default`
 --> b.toml:2:8
  |
2 | name = \"store\"
  |        ^^^^^^^ defined again
  |
 ::: a.toml:3:8
  |
3 | name = \"store\"
  |        ------- first defined here
"
    );
}

#[test]
fn related_location_in_the_same_file_shares_the_excerpt() {
    let text = "[[service]]\nname = \"a\"\nports = []\n\n\n\n[[service]]\nname = \"a\"\n";
    assert_eq!(
        rendered(&[Document::new("a.toml", text)]),
        "\
error[IM0202]: service `a` is defined twice in namespace `default`
 --> a.toml:8:8
  |
2 | name = \"a\"
  |        --- first defined here
...
8 | name = \"a\"
  |        ^^^ defined again
"
    );
}

#[test]
fn findings_are_separated_by_blank_lines_and_colored_on_request() {
    let loaded = load_documents([Document::new("a.toml", "x = 1\ny = 2\n")]);
    let plain = render(&loaded.findings, &loaded.documents, false);
    assert_eq!(plain.matches("\n\nerror[IM0102]").count(), 1);
    assert!(!plain.contains('\u{1b}'));
    assert!(render(&loaded.findings, &loaded.documents, true).contains('\u{1b}'));
    assert_eq!(render(&[], &[], true), "");
}

#[test]
fn finding_without_source_or_at_end_of_file_is_rendered() {
    let spot = Spot::new(&"gone.toml".into(), "", 0..0);
    let finding = Finding::error(crate::codes::UNREADABLE_FILE, Some(spot), "it is gone");
    assert_eq!(render(&[finding], &[], false), "error[IM0107]: it is gone\n--> gone.toml:1:1\n");
    for text in ["a = ", "a = [", "[", "ü = \"", "x\n\n\n", "\n\n["] {
        assert!(rendered(&[Document::new("a.toml", text)]).contains("a.toml"), "{text}");
    }
}

#[test]
fn damaged_document_is_rendered_without_panic() {
    let text = include_str!("../policy/tests/bookstore.toml").replace("buy", "büy");
    for (at, character) in text.char_indices() {
        let (before, after) = text.split_at(at);
        rendered(&[Document::new("a.toml", before)]);
        // One character left out, and one too many.
        rendered(&[Document::new("a.toml", format!("{before}{}", &after[character.len_utf8()..]))]);
        rendered(&[Document::new("a.toml", format!("{before}\"{after}"))]);
    }
}

#[test]
fn hostile_file_name_and_source_render_without_control_codes() {
    let document = Document::new("a\u{1b}[2J\n\u{202e}.toml", "x\u{1b}y = \"\u{202e}\u{9b}\"\n");
    let loaded = load_documents(vec![document.clone()]);
    assert!(!loaded.findings.is_empty());
    for color in [false, true] {
        for documents in [std::slice::from_ref(&document), &[]] {
            let rendered = render(&loaded.findings, documents, color);
            let own = rendered.replace("\u{1b}[0m", "").replace("\u{1b}[1m", "");
            let own = own.replace("\u{1b}[", if color { "" } else { "\u{1b}[" });
            assert!(!own.contains(['\u{1b}', '\u{202e}', '\r']), "{rendered:?}");
            assert!(rendered.contains("a\\u001b[2J\\u000a\\u202e.toml"), "{rendered:?}");
        }
    }
}
