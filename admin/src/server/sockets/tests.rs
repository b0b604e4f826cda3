use super::*;

fn folder(mode: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    folder
}

#[tokio::test]
async fn group_socket_needs_a_folder_of_its_group_alone() {
    for mode in [0o2755, 0o2751, 0o2777, 0o2770, 0o750, 0o700] {
        let folder = folder(mode);
        let error = bind_group_socket(&folder.path().join("operators.sock")).unwrap_err();
        assert!(matches!(error, BindError::Folder { .. }), "{mode:o}: {error}");
        assert!(error.to_string().contains(&format!("the mode {mode:o}")), "{error}");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0, "{mode:o}");
    }
    let folder = folder(0o2750);
    let path = folder.path().join("operators.sock");
    let _listener = bind_group_socket(&path).unwrap();
    let socket = fs_err::metadata(&path).unwrap();
    assert_eq!(socket.mode() & 0o7777, 0o660);
    assert_eq!(socket.gid(), fs_err::metadata(folder.path()).unwrap().gid());
    let missing = bind_group_socket(&folder.path().join("missing/operators.sock")).unwrap_err();
    assert!(
        missing.to_string().contains("missing` of `group_socket` is missing: `install"),
        "{missing}"
    );
}

#[tokio::test]
async fn group_socket_replaces_that_of_a_dead_process_only() {
    let folder = folder(0o2750);
    let path = folder.path().join("operators.sock");
    fs_err::write(&path, "a file of someone").unwrap();
    assert!(matches!(bind_group_socket(&path), Err(BindError::System { .. })));
    assert_eq!(fs_err::read_to_string(&path).unwrap(), "a file of someone");
    fs_err::remove_file(&path).unwrap();
    let first = bind_group_socket(&path).unwrap();
    let second = bind_group_socket(&path);
    assert!(matches!(second, Err(BindError::InUse { .. })), "{second:?}");
    drop(first);
    bind_group_socket(&path).unwrap();
}

#[test]
fn group_socket_needs_folders_that_no_other_user_changes() {
    let outer = folder(0o755);
    let own = fs_err::metadata(outer.path()).unwrap().uid();
    let inner = outer.path().join("inner");
    fs_err::create_dir(&inner).unwrap();
    let path = inner.join("operators.sock");
    let check = |mode, uid| {
        fs_err::set_permissions(outer.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        check_owners(&path, &inner, uid)
    };
    // The folder of temporary files, which all users write to, has the sticky bit.
    for mode in [0o755, 0o775, 0o1777] {
        check(mode, own).unwrap();
    }
    let error = check(0o777, own).unwrap_err().to_string();
    assert!(error.contains("has the mode 777, by which all users write"), "{error}");
    if own != 0 {
        let error = check(0o755, own + 1).unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to the user with uid {own}")), "{error}");
    }
    // A link in a folder that others write to may lead elsewhere tomorrow.
    let shared = folder(0o777);
    let link = shared.path().join("link");
    std::os::unix::fs::symlink(&inner, &link).unwrap();
    fs_err::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = check_owners(&path, &link, own).unwrap_err();
    assert!(matches!(error, BindError::Replaceable { .. }), "{error}");
}

/// As root, a folder of another user can be made.
#[test]
fn group_socket_rejects_a_folder_of_another_user() {
    let outer = folder(0o755);
    if std::os::unix::fs::chown(outer.path(), Some(12_345), None).is_err() {
        return;
    }
    let error = bind_group_socket(&outer.path().join("operators.sock")).unwrap_err();
    assert!(matches!(error, BindError::Folder { .. }), "{error}");
    fs_err::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o2750)).unwrap();
    let error = bind_group_socket(&outer.path().join("operators.sock")).unwrap_err();
    assert!(error.to_string().contains("belongs to the user with uid 12345"), "{error}");
}
