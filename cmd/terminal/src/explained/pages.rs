//! The pages of docs/errors, embedded in the binary.

/// Builds the table of numbers and pages. Each number is also given with four digits, as in the file name.
macro_rules! pages {
    ($($number:literal $digits:literal,)*) => {
        &[$((
            $number,
            include_str!(concat!("../../../../docs/errors/IM", $digits, ".md")),
        )),*]
    };
}

/// The page of each code, in order.
pub(super) const PAGES: &[(u16, &str)] = pages![
    101 "0101", 102 "0102", 103 "0103", 104 "0104", 105 "0105", 106 "0106", 107 "0107", 108 "0108",
    109 "0109", 111 "0111", 112 "0112", 113 "0113", 114 "0114", 115 "0115", 116 "0116", 117 "0117",
    118 "0118", 119 "0119", 201 "0201", 202 "0202", 301 "0301", 302 "0302", 303 "0303", 304 "0304",
    305 "0305", 306 "0306", 307 "0307", 308 "0308", 309 "0309", 310 "0310", 313 "0313", 314 "0314",
    401 "0401", 402 "0402", 403 "0403", 404 "0404", 405 "0405", 406 "0406", 407 "0407", 408 "0408",
    409 "0409", 410 "0410", 411 "0411", 412 "0412", 413 "0413",
    501 "0501", 502 "0502", 503 "0503", 504 "0504", 505 "0505", 506 "0506", 507 "0507",
    508 "0508", 509 "0509", 510 "0510", 511 "0511", 512 "0512", 601 "0601", 602 "0602", 603 "0603",
    604 "0604", 611 "0611", 612 "0612", 621 "0621", 622 "0622", 631 "0631", 632 "0632", 633 "0633",
    641 "0641", 642 "0642", 643 "0643", 651 "0651", 661 "0661", 662 "0662", 663 "0663", 664 "0664",
    665 "0665", 701 "0701", 702 "0702", 703 "0703", 704 "0704", 705 "0705", 706 "0706",
    707 "0707", 708 "0708", 709 "0709", 711 "0711", 712 "0712", 713 "0713",
    714 "0714", 715 "0715", 721 "0721", 722 "0722", 723 "0723", 724 "0724", 725 "0725", 726 "0726",
    727 "0727", 728 "0728", 729 "0729", 731 "0731", 732 "0732", 733 "0733", 734 "0734", 735 "0735",
    736 "0736", 737 "0737",
    741 "0741", 742 "0742", 743 "0743", 744 "0744", 751 "0751", 754 "0754",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_error_page_is_embedded_under_its_code() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        let files = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut kept: Vec<_> = files
            .filter_map(|name| {
                Some(
                    name.to_str()?.strip_prefix("IM")?.strip_suffix(".md")?.parse::<u16>().unwrap(),
                )
            })
            .collect();
        kept.sort_unstable();
        let here: Vec<_> = PAGES.iter().map(|(number, _)| *number).collect();
        assert_eq!(here, kept, "left: cmd/terminal/src/explained/pages.rs; right: docs/errors");
        for (number, page) in PAGES {
            assert!(page.starts_with(&format!("# IM{number:04}: ")), "{number}");
        }
    }
}
