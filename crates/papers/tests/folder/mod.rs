//! Reads every file of a folder of vectors, each with the reader for its name.

use std::env;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The suffix of the names of files that it reads, and what it does with the name and the text of each.
pub(crate) type Reader<'a> = (&'a str, &'a dyn Fn(&str, &str));

/// Calls a reader with the name and the text of each file of `WEIR_VECTORS/part`. The reader is the first whose
/// suffix the file's name has. Panics if there is no file, and at a file for which there is no reader.
pub(crate) fn read_all(part: &str, readers: &[Reader<'_>]) {
    let root = PathBuf::from(env::var_os("WEIR_VECTORS").expect("WEIR_VECTORS names the folder"));
    let folder = root.join(part);
    let entries = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{} cannot be listed: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it is listed").path()).collect();
    paths.sort();
    for path in &paths {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        let reader = readers.iter().find(|(suffix, _)| name.ends_with(suffix));
        let (_, read) = reader.unwrap_or_else(|| {
            let known: Vec<_> = readers.iter().map(|(suffix, _)| *suffix).collect();
            panic!("{}: no reader for this name; {known:?} are read", path.display())
        });
        let mut text = String::new();
        let file = BufReader::new(File::open(path).expect("the file can be opened"));
        let length = if Path::new(name).extension().is_some_and(|extension| extension == "zst") {
            zstd::Decoder::new(file).expect("it is compressed").read_to_string(&mut text)
        } else {
            BufReader::new(file).read_to_string(&mut text)
        };
        length.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!text.trim().is_empty(), "{}: there is no vector in it", path.display());
        read(name, &text);
    }
    assert!(!paths.is_empty(), "{}: there are no vectors", folder.display());
}
