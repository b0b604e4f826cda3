use super::*;

#[test]
fn functions_and_scenarios_have_the_first_line_of_their_comment() {
    let source = "
        in_both_variants! { first, second }
        /// R1: a scenario.
        /// More.
        fn first<V: Dialect>() { body(); }
        // R2.
        fn second<V: Dialect>() {}
        /// R3.
        fn helper() {}
        #[tokio::test(start_paused = true)]
        /// R4.
        async fn third() {}
        #[test]
        fn fourth() {}
    ";
    let found = [
        ("first", "/// R1: a scenario."),
        ("second", "// R2."),
        ("third", "/// R4."),
        ("fourth", ""),
    ];
    assert_eq!(test_functions(source), found);
}

#[test]
fn variant_follows_from_tag_or_name() {
    let test = |name: &str, line| {
        let test = TaggedTest::new(name, line).unwrap().unwrap();
        (test.is_only_of(Note::Delta), test.is_only_of(Note::Sotw))
    };
    assert_eq!(test("scenarios::order::a", "/// R1."), (false, false));
    assert_eq!(test("delta::order::a", "/// R1."), (true, false));
    assert_eq!(test("it::nacks::sotw_client", "/// R1."), (false, true));
    assert_eq!(test("it::streams::a", "/// R1 (delta)."), (true, false));
}

#[test]
fn tag_in_a_plain_comment_is_an_error() {
    TaggedTest::new("it::streams::a", "// R1.").unwrap_err();
    assert!(TaggedTest::new("it::streams::a", "// Reads R1.").unwrap().is_none());
}
