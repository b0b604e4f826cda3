use super::*;

#[test]
fn unknown_code_error_lists_the_three_nearest() {
    let near = |text: &str| -> Vec<_> {
        let words = code(text).unwrap_err();
        words
            .lines()
            .skip(1)
            .map(|line| line.trim().split(' ').next().unwrap().to_owned())
            .collect()
    };
    let last: Vec<_> =
        PAGES.iter().rev().take(NEAR).map(|(number, _)| Code(*number).to_string()).collect();
    assert_eq!(near("IM9999"), last);
    // One digit is wrong, or two changed resolved.
    assert!(near("IM0320").contains(&"IM0302".to_owned()));
    assert!(near("IM1404").contains(&"IM0404".to_owned()));
    assert_eq!(near("IM0001"), ["IM0101", "IM0201", "IM0301"]);
    let words = code("IM9999").unwrap_err();
    let start = format!("there is no code IM9999; the nearest are:\n  {} ", last[0]);
    assert!(words.starts_with(&start), "{words}");
}

#[test]
fn finding_code_parses_in_all_common_spellings() {
    for text in ["IM0101", "im0101", "IM101", "101", "0101"] {
        assert_eq!(code(text).unwrap().code, Code(101), "{text}");
    }
    for text in ["", "IM", "IM01O1", "XY0101", "70000", "-101", "ü"] {
        assert!(code(text).unwrap_err().starts_with("a code is written"), "{text}");
    }
    assert!(!code("IM01O1").unwrap_err().contains('\n'));
}
