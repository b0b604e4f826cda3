//! The format of an export: a header, then frames of AES-256-GCM (the STREAM construction of Hoang et al., 2015).
//!
//! ```text
//! header   magic 16 | format 1 | key id 8 | salt 32
//! frame    length 4 | ciphertext and tag
//! ```
//!
//! The key of the file is derived from the header with its random salt. The nonce of a frame is its number, and whether it
//! is the last one. So frames that are changed, moved, removed or added do not open, nor do those of a different file.

use std::io::{self, Read, Write};

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

use super::key::ExportKey;
use crate::identity::KeyId;
use crate::record_cipher::CipherFault;

/// The first bytes of each export.
const MAGIC: &[u8; 16] = b"ironmesh export\n";
/// The format that this version writes and reads.
pub(crate) const FORMAT: u8 = 1;
pub(crate) const HEADER: usize = MAGIC.len() + 1 + KeyId::LENGTH + SALT;
const SALT: usize = 32;
/// The most plain bytes of a frame.
pub(crate) const FRAME: usize = 64 * 1024;
const TAG: usize = 16;

/// Why an export cannot be read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ExportFault {
    /// The file is no export.
    #[error("it was not written by `ironmesh store export`")]
    Foreign,
    /// A different version wrote it.
    #[error(
        "it has the format {0}, and this version reads format {FORMAT}: use the version of ironmesh that wrote it"
    )]
    OtherFormat(u8),
    /// It was sealed under another key-encryption key.
    #[error(
        "it was sealed with a different key-encryption key (id {found}; the key of the settings has {own}): copy the key of \
         the exported mesh to `key_encryption_key` of the settings"
    )]
    OtherKey {
        /// The key of the export.
        found: KeyId,
        /// The key of the settings.
        own: KeyId,
    },
    /// It was changed, or is damaged.
    #[error("it was changed or is damaged: export again")]
    NotAuthentic,
    /// Its end is missing.
    #[error("its end is missing: the export or its copy was interrupted, so export or copy again")]
    Truncated,
    /// It has data that this version does not know.
    #[error(
        "it has {0}, which this version does not know: use the version of ironmesh that wrote it"
    )]
    Unknown(String),
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// No key can be derived, or no random bytes.
    #[error(transparent)]
    Cipher(#[from] CipherFault),
}

/// Seals what is written into it.
pub(crate) struct SealedWriter<W> {
    output: W,
    cipher: LessSafeKey,
    number: u64,
    frame: Zeroizing<Vec<u8>>,
}

impl<W: Write> SealedWriter<W> {
    /// Writes the header of a new export.
    pub(crate) fn new(key: &ExportKey, mut output: W) -> io::Result<Self> {
        let mut salt = [0; SALT];
        rand::fill(&mut salt).map_err(|_| io::Error::other(CipherFault))?;
        let header = [MAGIC.as_slice(), &[FORMAT], key.id().as_bytes(), &salt].concat();
        let cipher = key.cipher(&header).map_err(io::Error::other)?;
        output.write_all(&header)?;
        // The whole capacity at once: growth would leave copies of private keys in memory.
        let frame = Zeroizing::new(Vec::with_capacity(FRAME + TAG));
        Ok(Self { output, cipher, number: 0, frame })
    }

    /// Writes the last frame. Without it, nothing reads the export.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = Nonce::assume_unique_for_key(nonce(self.number, is_last));
        self.cipher
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.frame)
            .map_err(|_| io::Error::other(CipherFault))?;
        self.number += 1;
        let length = u32::try_from(self.frame.len()).map_err(io::Error::other)?;
        self.output.write_all(&length.to_be_bytes())?;
        self.output.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.len() == FRAME {
            self.seal(false)?;
        }
        let length = bytes.len().min(FRAME - self.frame.len());
        self.frame.extend(bytes.iter().take(length));
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens an export frame by frame: it returns no byte that is not authentic.
pub(crate) struct SealedReader<R> {
    input: R,
    cipher: LessSafeKey,
    number: u64,
    frame: Zeroizing<Vec<u8>>,
    /// How many bytes of the frame have been read.
    read: usize,
    is_last: bool,
}

impl<R: Read> SealedReader<R> {
    /// Reads the header.
    pub(crate) fn new(key: &ExportKey, mut input: R) -> Result<Self, ExportFault> {
        let mut header = [0; HEADER];
        let length = fill(&mut input, &mut header).map_err(ExportFault::Unreadable)?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let known = length.min(MAGIC.len());
        if length == 0 || magic.get(..known) != MAGIC.get(..known) {
            return Err(ExportFault::Foreign);
        }
        if length < HEADER {
            return Err(ExportFault::Truncated);
        }
        let (format, rest) = rest.split_first().ok_or(ExportFault::Truncated)?;
        if *format != FORMAT {
            return Err(ExportFault::OtherFormat(*format));
        }
        let id = rest.first_chunk().ok_or(ExportFault::Truncated)?;
        let found = KeyId::from_bytes(*id);
        if found != key.id() {
            return Err(ExportFault::OtherKey { found, own: key.id() });
        }
        let cipher = key.cipher(&header)?;
        let frame = Zeroizing::new(Vec::with_capacity(FRAME + TAG));
        Ok(Self { input, cipher, number: 0, frame, read: 0, is_last: false })
    }

    /// Reads so many bytes, which are all there.
    pub(crate) fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ExportFault> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let available = self.frame.get(self.read..).unwrap_or_default();
            if available.is_empty() {
                self.next_frame()?;
                continue;
            }
            let length = rest.len().min(available.len());
            for (to, from) in rest.iter_mut().zip(available) {
                *to = *from;
            }
            (done, self.read) = (done + length, self.read + length);
        }
        Ok(())
    }

    /// Makes sure that nothing follows.
    pub(crate) fn expect_end(mut self) -> Result<(), ExportFault> {
        while !self.is_last {
            if self.read < self.frame.len() {
                return Err(ExportFault::NotAuthentic);
            }
            self.next_frame()?;
        }
        let has_rest = self.read < self.frame.len();
        let after = fill(&mut self.input, &mut [0]).map_err(ExportFault::Unreadable)?;
        if has_rest || after > 0 { Err(ExportFault::NotAuthentic) } else { Ok(()) }
    }

    fn next_frame(&mut self) -> Result<(), ExportFault> {
        if self.is_last {
            // The data ends within an item, which no export does.
            return Err(ExportFault::NotAuthentic);
        }
        let mut length = [0; 4];
        if fill(&mut self.input, &mut length).map_err(ExportFault::Unreadable)? < length.len() {
            return Err(ExportFault::Truncated);
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if !(TAG..=FRAME + TAG).contains(&length) {
            return Err(ExportFault::NotAuthentic);
        }
        let mut sealed = vec![0; length];
        if fill(&mut self.input, &mut sealed).map_err(ExportFault::Unreadable)? < length {
            return Err(ExportFault::Truncated);
        }
        for is_last in [false, true] {
            self.frame.clear();
            self.frame.extend_from_slice(&sealed);
            let nonce = Nonce::assume_unique_for_key(nonce(self.number, is_last));
            let opened = self.cipher.open_in_place(nonce, Aad::empty(), &mut self.frame);
            if let Ok(opened) = opened.map(|plain| plain.len()) {
                self.frame.truncate(opened);
                (self.number, self.read, self.is_last) = (self.number + 1, 0, is_last);
                return Ok(());
            }
        }
        self.frame.clear();
        Err(ExportFault::NotAuthentic)
    }
}

/// The nonce of a frame: its number, and whether it is the last one.
fn nonce(number: u64, is_last: bool) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    for (to, from) in nonce.iter_mut().zip(number.to_be_bytes()) {
        *to = from;
    }
    if let Some(last) = nonce.last_mut() {
        *last = u8::from(is_last);
    }
    nonce
}

/// Reads as many bytes as there are; returns how many.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
