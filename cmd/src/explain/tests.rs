use super::*;

#[test]
fn a_code_is_read_as_people_write_it() {
    for text in ["IM0101", "im0101", "IM101", "101", "0101"] {
        assert_eq!(code(text).unwrap().code, Code(101), "{text}");
    }
    for text in ["", "IM", "IM01O1", "XY0101", "70000", "-101", "ü"] {
        assert!(code(text).unwrap_err().starts_with("a code is written"), "{text}");
    }
    let unknown = code("IM0999").unwrap_err();
    assert!(unknown.contains("\n  IM0101 the file is not TOML\n"), "{unknown}");
}
