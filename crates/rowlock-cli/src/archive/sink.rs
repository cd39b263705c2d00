//! Where the lines go: plain, gzip or zstd, by the ending of the name. What was flushed is on the disk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::AsyncWrite;

const ZSTD_LEVEL: i32 = 3;

/// A file that is being written.
pub(super) struct Sink {
    inner: Inner,
    used: bool,
}

enum Inner {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

impl Sink {
    /// `name` is the one that the file will have.
    pub(super) fn new(file: File, name: &Path) -> io::Result<Self> {
        let ending = name.extension().map(|e| e.to_string_lossy().to_lowercase());
        let inner = match ending.as_deref() {
            Some("gz" | "gzip") => Inner::Gzip(GzEncoder::new(file, Compression::default())),
            Some("zst" | "zstd") => Inner::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            _ => Inner::Plain(BufWriter::with_capacity(1 << 16, file)),
        };
        Ok(Self { inner, used: false })
    }

    /// Whether anything was written.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// Writes the end and waits for the disk.
    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self.inner {
            Inner::Plain(plain) => plain.into_inner().map_err(io::IntoInnerError::into_error)?,
            Inner::Gzip(gzip) => gzip.finish()?,
            Inner::Zstd(zstd) => zstd.finish()?,
        };
        file.sync_all()?;
        Ok(file)
    }

    fn flush(&mut self) -> io::Result<()> {
        let file = match &mut self.inner {
            Inner::Plain(plain) => {
                plain.flush()?;
                plain.get_ref()
            }
            Inner::Gzip(gzip) => {
                gzip.flush()?;
                gzip.get_ref()
            }
            Inner::Zstd(zstd) => {
                zstd.flush()?;
                zstd.get_ref()
            }
        };
        // The library deletes from the database what was flushed.
        file.sync_data()
    }
}

/// Blocks for as long as the disk takes: there is nothing else for this program to do meanwhile, and a line is never half written when the work
/// is dropped.
impl AsyncWrite for Sink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.used = true;
        Poll::Ready(match &mut self.inner {
            Inner::Plain(plain) => plain.write(data),
            Inner::Gzip(gzip) => gzip.write(data),
            Inner::Zstd(zstd) => zstd.write(data),
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn what_was_flushed_can_be_read_although_the_end_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.ndjson", "a.ndjson.gz", "a.ndjson.ZST"] {
            let path = directory.path().join(name);
            let mut sink = Sink::new(File::create(&path).unwrap(), &path).unwrap();
            assert!(!sink.is_used());
            sink.write_all(b"one\n").await.unwrap();
            AsyncWriteExt::flush(&mut sink).await.unwrap();
            assert_eq!(read(&path), "one\n", "{name}");
            sink.write_all(b"two\n").await.unwrap();
            sink.finish().unwrap();
            assert_eq!(read(&path), "one\ntwo\n", "{name}");
        }
    }

    /// As much as can be read.
    fn read(path: &Path) -> String {
        let file = File::open(path).unwrap();
        let mut reader: Box<dyn Read> = match path.extension().unwrap().to_str().unwrap() {
            "gz" => Box::new(flate2::read::GzDecoder::new(file)),
            "ZST" => Box::new(zstd::Decoder::new(file).unwrap()),
            _ => Box::new(file),
        };
        let mut text = Vec::new();
        // An end that is missing is an error after all that is there.
        let _ = reader.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }
}
