use super::*;

fn filled(page: &str) -> String {
    let test = |name: &str, line| TaggedTest::new(name, line).unwrap().unwrap();
    let tests = [
        test("scenarios::order::a", "/// R1, R2."),
        test("delta::order::b", "/// R1."),
        test("it::streams::c", "/// A1, A2 (bystander)."),
        test("it::streams::d", "/// A1."),
    ];
    fill(page, &tests).unwrap().0
}

#[test]
fn variants_have_their_own_column_and_reasons_stay() {
    let head = "text\n\n| rule | both | delta | state of the world |\n|---|---|---|---|\n";
    let page = format!(
        "{head}| R1 | `old` | | |\n| R2 | | | does not apply: why |\n| R3 | | not served: why; `old` | |\n"
    );
    let expected = format!(
        "{head}| R1 | `scenarios::order::a` | `delta::order::b` | |\n\
         | R2 | | `scenarios::order::a` | does not apply: why |\n| R3 | | not served: why | |\n"
    );
    assert_eq!(filled(&page), expected);
}

#[test]
fn bystanders_have_a_column() {
    let head = "| case | text | tests | others are measured in |\n|---|---|---|---|\n";
    assert_eq!(
        filled(&format!("{head}| A1 | `kept` | | |\n| A3 | | | not measured: why |\n")),
        format!(
            "{head}| A1 | `kept` | `it::streams::c`, `it::streams::d` | `it::streams::c` |\n\
             | A3 | | | not measured: why |\n"
        )
    );
}

#[test]
fn table_without_tests_is_unchanged() {
    let page = "| rule | broken so that |\n|---|---|\n| R1 | `kept` |\n";
    assert_eq!(filled(page), page);
}
