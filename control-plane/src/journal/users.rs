//! The names of users of this machine.
//!
//! Only `/etc/passwd` is read: the owner of the state folder is root or a local user. For users of a directory
//! service, entries have the id alone.

use fs_err::read_to_string;

/// The name of a user id, if the machine has one for it. Blocks on a small file.
pub fn user_name(uid: u32) -> Option<String> {
    name_in(&read_to_string("/etc/passwd").ok()?, uid)
}

/// The name of a user id in the text of `/etc/passwd`: lines of `name:password:uid:…`.
fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let is_it = fields.nth(1)?.parse() == Ok(uid);
        is_it.then(|| super::line(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_the_first_with_that_id() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n#\n:x:7::\nmesh:x:998:998::/:\ntoo:x:998:1::/:\n";
        assert_eq!(name_in(passwd, 0).as_deref(), Some("root"));
        assert_eq!(name_in(passwd, 998).as_deref(), Some("mesh"));
        assert_eq!((name_in(passwd, 7), name_in(passwd, 1)), (None, None));
    }
}
