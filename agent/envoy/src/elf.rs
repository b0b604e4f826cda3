//! The header of an executable: whether this machine can run it.

/// The first bytes of an ELF file, up to the architecture.
pub(crate) const HEADER_LENGTH: usize = 20;

/// The architecture of this program, in Rust's name and ELF's number (`e_machine`).
const ARCHITECTURES: [(&str, u16); 4] =
    [("x86_64", 62), ("aarch64", 183), ("riscv64", 243), ("s390x", 22)];

/// Why this machine cannot run a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("it is a script: name the program that the script runs")]
    Script,
    #[error("it is no executable file of Linux (no ELF header)")]
    NotElf,
    #[error("its ELF header is truncated: copy or install the file again")]
    Truncated,
    #[error("it is a 32-bit program: install Envoy for {own}")]
    Not64Bit { own: &'static str },
    #[error("it is for {other}, and this machine is {own}: install Envoy for {own}")]
    OtherArchitecture { other: String, own: &'static str },
    #[error("it is an ELF file, but no program")]
    NotProgram,
}

/// Checks the first bytes of a file.
pub(crate) fn check_header(header: &[u8]) -> Result<(), ElfError> {
    let own = std::env::consts::ARCH;
    if header.starts_with(b"#!") {
        return Err(ElfError::Script);
    }
    if !header.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    let Some(&[_, _, _, _, class, data, .., t0, t1, m0, m1]) =
        header.first_chunk::<HEADER_LENGTH>()
    else {
        return Err(ElfError::Truncated);
    };
    if class != 2 {
        return Err(ElfError::Not64Bit { own });
    }
    let number = |bytes: [u8; 2]| match data {
        2 => u16::from_be_bytes(bytes),
        _ => u16::from_le_bytes(bytes),
    };
    let machine = number([m0, m1]);
    let name = ARCHITECTURES.iter().find(|(_, of)| *of == machine).map(|(name, _)| *name);
    let is_known = ARCHITECTURES.iter().any(|(name, _)| *name == own);
    if is_known && name != Some(own) {
        let other = name.map_or_else(|| format!("architecture {machine}"), str::to_owned);
        return Err(ElfError::OtherArchitecture { other, own });
    }
    // Executables, and position-independent ones.
    if matches!(number([t0, t1]), 2 | 3) { Ok(()) } else { Err(ElfError::NotProgram) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a program for this machine.
    fn own() -> Vec<u8> {
        let program = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        program[..HEADER_LENGTH].to_vec()
    }

    fn with(changes: &[(usize, u8)]) -> Vec<u8> {
        let mut header = own();
        for (at, byte) in changes {
            header[*at] = *byte;
        }
        header
    }

    #[test]
    fn only_programs_for_this_machine_pass() {
        assert_eq!(check_header(&own()), Ok(()));
        let error = |header: &[u8]| check_header(header).unwrap_err().to_string();
        assert_eq!(check_header(b"#!/bin/sh\n"), Err(ElfError::Script));
        assert_eq!(check_header(b""), Err(ElfError::NotElf));
        assert_eq!(check_header(b"\x7fEL"), Err(ElfError::NotElf));
        assert_eq!(check_header(b"MZ and more than twenty bytes"), Err(ElfError::NotElf));
        assert_eq!(check_header(&own()[..HEADER_LENGTH - 1]), Err(ElfError::Truncated));
        assert!(error(&with(&[(4, 1)])).contains("32-bit"));
        assert_eq!(check_header(&with(&[(16, 1)])), Err(ElfError::NotProgram));
        let other = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
        let problem = error(&with(&[(18, other), (19, 0)]));
        assert!(problem.contains("it is for") && problem.contains("this machine is"), "{problem}");
        assert!(error(&with(&[(18, 8), (19, 0)])).contains("architecture 8"));
    }
}
