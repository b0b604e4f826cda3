use std::os::unix::fs::symlink;

use fs_err as fs;
use tempfile::TempDir;

use super::listing::Listing;
use super::*;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn paths(path: &Path) -> Vec<String> {
    let folder = read_folder(path).unwrap();
    assert!(folder.findings.is_empty(), "{:#?}", folder.findings);
    folder.documents.iter().map(|document| document.path.to_string()).collect()
}

fn problems(path: &Path) -> Vec<String> {
    let findings = read_folder(path).unwrap().findings;
    findings.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn policy_files_are_read_in_order_without_hidden_ones() {
    let folder = folder(&[
        ("b.toml", b"# b"),
        ("c.yaml", b"# c"),
        ("a/c.yml", b""),
        ("d.yaml.orig", b""),
        (".hidden.yaml", b""),
        ("a/z.toml", b""),
        ("a.toml", b""),
        ("notes.md", b""),
        (".hidden.toml", b""),
        (".git/config.toml", b""),
    ]);
    assert_eq!(paths(folder.path()), ["a.toml", "a/c.yml", "a/z.toml", "b.toml", "c.yaml"]);
    assert_eq!(&*read_folder(folder.path()).unwrap().documents[3].text, "# b");
}

#[test]
fn single_toml_file_is_a_valid_policy() {
    let folder = folder(&[("a.toml", b"[[service]]\nname = \"a\"\n")]);
    assert_eq!(paths(&folder.path().join("a.toml")), ["a.toml"]);
    assert!(load_folder(folder.path()).unwrap().specification.is_some());
}

// Invariant 1: an emptied folder is a fault, not a policy.
#[test]
fn folder_without_content_is_an_error_and_a_comment_is_not() {
    let nothing = folder(&[("notes.md", b"")]);
    assert_eq!(problems(nothing.path()), ["the policy folder holds no policy file"]);
    assert!(load_folder(nothing.path()).unwrap().specification.is_none());
    // A full disk leaves empty files.
    let blank = folder(&[("a.toml", b""), ("b.yaml", b" \n")]);
    assert_eq!(problems(blank.path()), ["all 2 policy files are empty"]);
    assert_eq!(problems(&blank.path().join("a.toml")), ["the only policy file is empty"]);
    let intended = folder(&[("none.toml", b"# Nothing is allowed yet.\n"), ("a.toml", b"")]);
    let loaded = load_folder(intended.path()).unwrap();
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    assert_eq!(loaded.specification.unwrap().object_count(), 0);
}

#[test]
fn ignored_files_are_one_warning_and_change_no_revision() {
    let text = b"[[service]]\nname = \"a\"\n";
    let folder = folder(&[("a.toml", text)]);
    let before = load_folder(folder.path()).unwrap();
    for name in ["b.tml", "c.TOML", "README.md", "a.toml~", "Makefile", ".hidden"] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut loader = Loader::default();
    for _ in 0..2 {
        let Folder { documents, findings } = read_folder(folder.path()).unwrap();
        let loaded = loader.load(documents, findings);
        let reported: Vec<_> = loaded.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            ["warning[IM0116]: 2 files are not read as policy: `b.tml`, `c.TOML`"]
        );
        assert_eq!(loaded.revision, before.revision);
        assert!(loaded.specification.is_some());
    }
    assert_eq!(loader.checked(), 1, "the same warning does not repeat the whole check");
    for number in 0..9 {
        fs::write(folder.path().join(format!("{number}.json")), "").unwrap();
    }
    let reported = problems(folder.path());
    assert!(
        reported[0].starts_with("11 files are not read as policy: `0.json`, `1.json`"),
        "{reported:?}"
    );
    assert!(reported[0].ends_with("`4.json` and 6 more"), "{reported:?}");
}

#[test]
fn growing_file_is_an_error_and_a_replaced_file_is_not() {
    use std::io::Write as _;
    let folder = folder(&[("a.toml", b"# a\n"), ("b.toml", b"# b\n"), ("c.toml", b"# c\n")]);
    let at = |name: &str| folder.path().join(name);
    let before = Listing::of(folder.path()).unwrap();
    let mut growing = fs::OpenOptions::new().append(true).open(at("a.toml")).unwrap();
    growing.write_all(b"# more\n").unwrap();
    fs::write(at("new"), "# the new b\n").unwrap();
    fs::rename(at("new"), at("b.toml")).unwrap();
    let mut read = read_folder(folder.path()).unwrap();
    read.withdraw_growing(&before, &Listing::of(folder.path()).unwrap());
    let reported: Vec<_> = read.findings.iter().map(ToString::to_string).collect();
    assert_eq!(reported, ["error[IM0117]: `a.toml` changes while it is read (a.toml:1:1)"]);
    let kept: Vec<_> = read.documents.iter().map(|document| &*document.path).collect();
    assert_eq!(kept, ["b.toml", "c.toml"]);
}

#[test]
fn single_yaml_file_is_a_valid_policy() {
    let text = b"apiVersion: v1\nkind: Service\nmetadata: { name: a }\n";
    let folder = folder(&[("a.yaml", text), ("b.yml", text)]);
    for file in ["a.yaml", "b.yml"] {
        let loaded = load_folder(&folder.path().join(file)).unwrap();
        assert_eq!(loaded.specification.unwrap().services.len(), 1, "{file}");
    }
    assert!(load_folder(folder.path()).unwrap().specification.is_none(), "defined twice");
    let wrong = folder.path().join("c.yaml");
    fs::write(&wrong, b"name: \xff\n").unwrap();
    let message = &read_folder(&wrong).unwrap().findings[0].message;
    assert_eq!(message, "`c.yaml` cannot be read: it is not UTF-8 from byte 6 on");
}

#[test]
fn links_into_hidden_folders_are_followed() {
    // Kubernetes mounts a config map in this layout.
    let folder = folder(&[("..2026/a.toml", b"# a")]);
    symlink("..2026", folder.path().join("..data")).unwrap();
    symlink("..data/a.toml", folder.path().join("a.toml")).unwrap();
    assert_eq!(paths(folder.path()), ["a.toml"]);
}

#[test]
fn links_out_of_the_folder_are_findings_and_not_read() {
    let place = folder(&[
        ("policy/a.toml", b"# a"),
        ("policy/deep/b.toml", b"# b"),
        ("kek", b"0123456789abcdef"),
        ("other/c.toml", b"[[service]]\nname = \"other\"\n"),
        ("policy-of-others/d.toml", b"# begins like the folder"),
    ]);
    let at = |name: &str| place.path().join(name);
    symlink("../kek", at("policy/key.toml")).unwrap();
    symlink(at("kek"), at("policy/deep/absolute.toml")).unwrap();
    symlink("../other", at("policy/folder")).unwrap();
    symlink("../policy-of-others/d.toml", at("policy/near.toml")).unwrap();
    // The link leaves the folder through a second link.
    symlink("folder/c.toml", at("policy/twice.toml")).unwrap();
    // The finding must not reveal whether the target exists.
    symlink("../none", at("policy/none.toml")).unwrap();
    // Not a policy file.
    symlink("../kek", at("policy/README.md")).unwrap();
    let policy = at("policy");
    let read = read_folder(&policy).unwrap();
    let documents: Vec<_> = read.documents.iter().map(|one| (&*one.path, &*one.text)).collect();
    assert_eq!(documents, [("a.toml", "# a"), ("deep/b.toml", "# b")]);
    let reported: Vec<_> = read.findings.iter().map(ToString::to_string).collect();
    let expected =
        ["deep/absolute.toml", "folder", "key.toml", "near.toml", "none.toml", "twice.toml"];
    let expected = expected.map(|link| {
        format!(
            "error[IM0119]: `{link}` is a symbolic link that leads out of the policy folder ({link}:1:1)"
        )
    });
    assert_eq!(reported, expected);
    let loaded = load_folder(&policy).unwrap();
    let drawn = ironmesh_config_language::render(&loaded.findings, &loaded.documents, false);
    assert!(!drawn.contains("0123") && loaded.specification.is_none(), "{drawn}");
}

// Deployment tools swap releases in this way.
#[test]
fn linked_folder_is_resolved_at_each_read() {
    let place = folder(&[("1/a.toml", b"# 1"), ("2/a.toml", b"# 2")]);
    let link = place.path().join("policy");
    for release in ["1", "2"] {
        let new = place.path().join("new");
        symlink(release, &new).unwrap();
        fs::rename(&new, &link).unwrap();
        let read = read_folder(&link).unwrap();
        assert_eq!(&*read.documents[0].text, format!("# {release}"));
        let file = read_folder(&link.join("a.toml")).unwrap();
        assert_eq!(&*file.documents[0].text, format!("# {release}"));
    }
}

#[test]
fn absolute_links_that_stay_in_the_folder_are_followed() {
    let place = folder(&[("..files/a.toml", b"# a")]);
    symlink(place.path().join("..files/a.toml"), place.path().join("a.toml")).unwrap();
    assert_eq!(paths(place.path()), ["a.toml"]);
}

#[test]
fn looping_and_dangling_links_are_findings() {
    let folder = folder(&[("a/b/c.toml", b"")]);
    symlink("..", folder.path().join("a/b/up")).unwrap();
    symlink("nothing", folder.path().join("gone.toml")).unwrap();
    symlink("self.toml", folder.path().join("self.toml")).unwrap();
    let reported = problems(folder.path());
    assert_eq!(reported.len(), 3, "{reported:#?}");
    assert!(
        reported[0].contains("`a/b/up`") && reported[0].contains("leads back"),
        "{reported:#?}"
    );
    assert!(reported[1].contains("link to nothing"), "{reported:#?}");
}

#[test]
fn non_utf8_file_is_a_finding_and_other_files_are_read() {
    let folder = folder(&[("a.toml", b"x = \xff"), ("b.toml", b"")]);
    fs::create_dir_all(folder.path().join("c.toml")).unwrap();
    let read = read_folder(folder.path()).unwrap();
    assert_eq!(read.documents.len(), 1);
    assert_eq!(read.findings.len(), 1);
    assert_eq!(
        read.findings[0].to_string(),
        "error[IM0107]: `a.toml` cannot be read: it is not UTF-8 from byte 4 on (a.toml:1:1)"
    );
    let loaded = load_folder(folder.path()).unwrap();
    assert!(loaded.specification.is_none());
    // An unreadable file and a missing file give different revisions.
    fs::remove_file(folder.path().join("a.toml")).unwrap();
    assert_ne!(load_folder(folder.path()).unwrap().revision, loaded.revision);
}

#[test]
fn oversized_file_is_a_finding() {
    let folder = folder(&[]);
    let file = fs::File::create(folder.path().join("big.toml")).unwrap();
    file.set_len(4 * 1024 * 1024 + 1).unwrap();
    assert_eq!(problems(folder.path()), ["`big.toml` cannot be read: it is larger than 4 MiB"]);
}

#[test]
fn non_regular_file_is_a_finding_without_blocking() {
    let folder = folder(&[("a.toml", b"")]);
    let at = |name: &str| folder.path().join(name);
    // Reading a pipe waits for its writer; reading a device may never end.
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.toml"), mode).unwrap();
    symlink("pipe.toml", at("link-to-pipe.toml")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.toml")).unwrap();
    let reported = problems(folder.path());
    assert_eq!(
        reported,
        ["link-to-pipe", "pipe", "socket"]
            .map(|name| format!("`{name}.toml` cannot be read: it is not a regular file"))
    );
}

/// Two links lead from each folder to the next, which makes 2^30 paths.
#[test]
fn folders_multiplied_by_links_exceed_the_folder_limit() {
    let folder = folder(&[]);
    for n in 0..30 {
        let inner = folder.path().join(format!("{n}"));
        fs::create_dir(&inner).unwrap();
        for link in ["a", "b"] {
            symlink(format!("../{}", n + 1), inner.join(link)).unwrap();
        }
    }
    fs::create_dir(folder.path().join("30")).unwrap();
    let reported: Vec<_> =
        read_folder(folder.path()).unwrap().findings.iter().map(ToString::to_string).collect();
    assert_eq!(reported, ["error[IM0113]: there are more than 10000 folders in the policy folder"]);
}

#[test]
fn invalid_policy_folder_path_is_an_error_with_a_remedy() {
    let folder = folder(&[("a.md", b"")]);
    let error = read_folder(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, FolderError::Missing { .. }));
    assert!(error.to_string().contains("none`: create it"), "{error}");
    let error = read_folder(&folder.path().join("a.md")).unwrap_err();
    assert!(matches!(error, FolderError::NotAFolder { .. }), "{error}");
    let error = read_folder(&folder.path().join("a.md/x")).unwrap_err();
    assert!(matches!(error, FolderError::NotAFolder { .. }), "{error}");
}
