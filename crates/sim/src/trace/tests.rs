use super::*;
use std::fmt::Write;
use std::io::Cursor;

fn reader(bytes: &[u8], format: Option<Format>) -> Result<Reader, Error> {
    Reader::new(Path::new("t"), Box::new(Cursor::new(bytes.to_vec())), format)
}

fn read_all(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    let mut reader = reader(bytes, None)?;
    let mut records = Vec::new();
    while let Some(record) = reader.read()? {
        records.push(record);
    }
    Ok(records)
}

/// A record of device 3.
fn record(time: u64, op: Op, offset: u64, size: u64, response: Option<u64>) -> Record {
    let response = response.map(Duration::from_nanos);
    let time = Duration::from_nanos(time);
    Record { time, op, device: 3, extent: Extent::new(offset, size), response }
}

const WEIR: &str = "# who made it\ntime_ns,op,dev,offset,size,resp_ns\n\
    0,R,3,0,512,\n# in between\n7,W,3,512,4096,99\n";

/// Both forms of the header, notices anywhere, an empty response time, no newline at the end.
#[test]
fn weir_lines_are_read() {
    let expected = [record(0, Op::Read, 0, 512, None), record(7, Op::Write, 512, 4_096, Some(99))];
    assert_eq!(read_all(WEIR.as_bytes()).unwrap(), expected);
    let short = "time_ns,op,dev,offset,size\r\n7,W,3,512,4096";
    assert_eq!(read_all(short.as_bytes()).unwrap(), [record(7, Op::Write, 512, 4_096, None)]);
}

/// A device may have its Linux name; it stands for the number that Linux makes of it.
#[test]
fn a_device_may_be_major_and_minor() {
    let text = "time_ns,op,dev,offset,size\n0,R,8:16,0,512\n";
    assert_eq!(read_all(text.as_bytes()).unwrap()[0].device, 8 << 20 | 16);
}

/// The first line of an MSR trace is a request and its time is zero; times are in units of 100 ns.
#[test]
fn msr_lines_are_read() {
    let text = "128166372003061629,hm,3,Read,383496192,32768,113736\n\
        128166372003061639,hm,3,Write,2822144,65536,413\n";
    let expected = [
        record(0, Op::Read, 383_496_192, 32_768, Some(11_373_600)),
        record(1_000, Op::Write, 2_822_144, 65_536, Some(41_300)),
    ];
    assert_eq!(read_all(text.as_bytes()).unwrap(), expected);
    assert_eq!(reader(text.as_bytes(), None).unwrap().format(), Format::Msr);
}

/// A compressed file reads like a plain one; one that was cut is an error, not an end.
#[test]
fn zstd_is_transparent() {
    let mut text = WEIR.to_owned();
    for time in 8..5_000 {
        writeln!(text, "{time},R,3,{},4096,", time * 7_919).unwrap();
    }
    let compressed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    assert_eq!(read_all(&compressed).unwrap(), read_all(text.as_bytes()).unwrap());
    let error = read_all(&compressed[..compressed.len() / 2]).unwrap_err();
    assert!(error.message.starts_with("cannot be read: "), "{error}");
}

/// Each kind of bad file, and the error that its reader gets.
#[test]
fn bad_files_are_explained() {
    let header = "time_ns,op,dev,offset,size\n";
    let line = |line: &str| format!("{header}{line}\n").into_bytes();
    let msr = |line: &str| format!("1000,hm,0,Read,0,512,1\n{line}\n").into_bytes();
    let mut invalid = line("0,R,0,0,512");
    invalid.extend_from_slice(b"1,R,0,\xff,512\n");
    let unknown = "this is no known trace; expected the header \
        `time_ns,op,dev,offset,size[,resp_ns]` or an MSR Cambridge line \
        `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`";
    let table: [(Vec<u8>, &str); 25] = [
        (b"".to_vec(), "t: the file has no requests and no header"),
        (b"# only a notice\n".to_vec(), "t:1: the file has no requests and no header"),
        (b"hello\n".to_vec(), &format!("t:1:1: {unknown}")),
        (
            b"time_ns,op,dev,size,offset\n".to_vec(),
            "t:1:16: the header must be `time_ns,op,dev,offset,size` or \
             `time_ns,op,dev,offset,size,resp_ns`",
        ),
        (line("x,R,0,0,512"), "t:2:1: `time_ns` is `x`; expected a whole number"),
        (line(",R,0,0,512"), "t:2:1: `time_ns` is ``; expected a whole number"),
        (line("-1,R,0,0,512"), "t:2:1: `time_ns` is `-1`; expected a whole number"),
        (line("0,r,0,0,512"), "t:2:3: `op` is `r`; expected `R` or `W`"),
        (
            line("0,R,4294967296,0,512"),
            "t:2:5: `dev` is `4294967296`; expected a number of at most 32 bits",
        ),
        (
            line("0,R,8:,0,512"),
            "t:2:5: `dev` is `8:`; expected `major:minor` of 12 and 20 bits, or a whole number",
        ),
        (
            line("0,R,0,18446744073709551616,512"),
            "t:2:7: `offset` is `18446744073709551616`; expected a number of at most 64 bits",
        ),
        (line("0,R,0,0,0"), "t:2:9: `size` is `0`; expected at least 1 byte"),
        (
            line("0,R,0,18446744073709551615,1"),
            "t:2:28: `size` is `1`; expected a range that ends within 2^64 bytes",
        ),
        (line("0,R,0,0"), "t:2:8: the line ends before its field `size`"),
        (line(""), "t:2:1: `time_ns` is ``; expected a whole number"),
        (line("0,R,0,0,512,9"), "t:2:13: `9` follows the last field"),
        (line("0,R,0,0,512 "), "t:2:9: `size` is `512 `; expected a whole number"),
        (
            line("5000,R,0,0,512\n1000,R,0,0,512"),
            "t:3:1: the time is 4.000 us before that of the request above; requests must be \
             sorted by time",
        ),
        (invalid, "t:3:7: the line is not text (invalid UTF-8)"),
        (line(&"9".repeat(5_000)), "t:2:4097: the line is longer than 4096 bytes"),
        (
            msr("999,hm,0,Read,0,512,1"),
            "t:2:1: `Timestamp` is `999`; expected no time before that of the first request, 1000",
        ),
        (
            msr("1001,web,0,Read,0,512,1"),
            "t:2:6: `Hostname` is `web`; expected `hm`, as above: one file is one host",
        ),
        (msr("1001,hm,0,Trim,0,512,1"), "t:2:11: `Type` is `Trim`; expected `Read` or `Write`"),
        (
            msr("1001,hm,0,Read,0,512,184467440737095517"),
            "t:2:22: `ResponseTime` is `184467440737095517`; expected less than 584 years",
        ),
        (msr("1001,hm,0,Read,0,512"), "t:2:21: the line ends before its field `ResponseTime`"),
    ];
    for (bytes, expected) in table {
        let message = read_all(&bytes).unwrap_err().to_string();
        assert_eq!(message, expected, "{}", String::from_utf8_lossy(&bytes));
    }
}

/// A format that is given is not guessed: its own reader says what it misses.
#[test]
fn a_given_format_is_kept() {
    let error = reader(b"1000,hm,0,Read,0,512,1\n", Some(Format::Weir)).unwrap_err();
    assert!(error.message.starts_with("the header must be"), "{error}");
}

/// A file that is not there is an error with its name.
#[test]
fn a_missing_file_is_named() {
    let error = Reader::open(Path::new("/nowhere/t.csv"), None).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/t.csv: cannot be opened: "), "{error}");
}
