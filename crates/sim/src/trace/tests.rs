use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Cursor, Write as _};

mod losses;

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
    assert_eq!(reader(text.as_bytes(), None).unwrap().format().as_str(), "msr");
}

/// A compressed file reads like a plain one, gzip also in several members; one that was cut is an error, not an end.
#[test]
fn compression_is_transparent() {
    let mut text = WEIR.to_owned();
    for time in 8..5_000 {
        writeln!(text, "{time},R,3,{},4096,", time * 7_919).unwrap();
    }
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (first, second) = text.as_bytes().split_at(1_000);
    let members = [gzip(first), gzip(second)].concat();
    let plain = read_all(text.as_bytes()).unwrap();
    for compressed in
        [zstd::encode_all(text.as_bytes(), 1).unwrap(), gzip(text.as_bytes()), members]
    {
        assert_eq!(read_all(&compressed).unwrap(), plain);
        let error = read_all(&compressed[..compressed.len() * 3 / 4]).unwrap_err();
        assert!(error.message.starts_with("cannot be read: "), "{error}");
    }
}

/// Each kind of bad file, and the error that its reader gets.
#[test]
fn bad_files_are_explained() {
    let header = "time_ns,op,dev,offset,size\n";
    let line = |line: &str| format!("{header}{line}\n").into_bytes();
    let msr = |line: &str| format!("1000,hm,0,Read,0,512,1\n{line}\n").into_bytes();
    let mut invalid = line("0,R,0,0,512");
    invalid.extend_from_slice(b"1,R,0,\xff,512\n");
    let unknown = format!(
        "this is no known trace: it begins with `hello`; expected the header \
         `time_ns,op,dev,offset,size`, or a format of {}; --format names one",
        Format::NAMES.join(", ")
    );
    let table: [(Vec<u8>, &str); 26] = [
        (b"".to_vec(), "t: the file has no requests and no header"),
        (b"# only a notice\n".to_vec(), "t:1: the file has no requests and no header"),
        (b"\nhello\n".to_vec(), &format!("t:2:1: {unknown}")),
        (
            b"time_ns,op,dev,size,offset\n".to_vec(),
            "t:1:16: the header must be `time_ns,op,dev,offset,size` or \
             `time_ns,op,dev,offset,size,resp_ns`",
        ),
        (line("x,R,0,0,512"), "t:2:1: `time_ns` is `x`; expected a whole number"),
        (line(",R,0,0,512"), "t:2:1: `time_ns` is ``; expected a whole number"),
        (line("-1,R,0,0,512"), "t:2:1: `time_ns` is `-1`; expected a whole number"),
        (line("0,r,0,0,512"), "t:2:3: `op` is `r`; expected `R` for a read or `W` for a write"),
        (
            line("0,R,4294967296,0,512"),
            "t:2:5: `dev` is `4294967296`; expected a number of at most 32 bits",
        ),
        (
            line("0,R,8:,0,512"),
            "t:2:5: `dev` is `8:`; expected `major:minor` of 12 and 20 bits, or a whole number",
        ),
        (line("0,R,-,0,512"), "t:2:5: `dev` is `-`; expected a number, `major:minor`, or a name"),
        (
            line("0,R,0,0,512\n0,R,sda,0,512"),
            "t:3:5: `dev` is `sda`; expected a number, as above: a file has numbers or names",
        ),
        (
            line("0,R,sda,0,512\n0,R,0,0,512"),
            "t:3:5: `dev` is `0`; expected a name, as above: a file has numbers or names",
        ),
        (
            line("0,R,sda,0,512\n0,R,8:16,0,512"),
            "t:3:5: `dev` is `8:16`; expected a name, as above: a file has numbers or names",
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
        (line("0,R,0,0,512,9"), "t:2:13: `9` follows the last field"),
        (
            line("5000,R,0,0,512\n1000,R,0,0,512"),
            "t:3:1: the time is 4.000 us before that of line 2; sort the file by time",
        ),
        (invalid, "t:3:7: the line is not text (invalid UTF-8)"),
        (line(&"9".repeat(5_000)), "t:2:4097: the line is longer than 4096 bytes"),
        (
            msr("1001,web,0,Read,0,512,1"),
            "t:2:6: `Hostname` is `web`; expected `hm`, as above: one file is one host",
        ),
        (
            msr("1001,hm,0,Trim,0,512,1"),
            "t:2:11: `Type` is `Trim`; expected `Read` for a read or `Write` for a write",
        ),
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
    let error = reader(b"1000,hm,0,Read,0,512,1\n", Some(Format::WEIR)).unwrap_err();
    assert!(error.message.starts_with("the header must be"), "{error}");
}

/// A file that is not there is an error with its name.
#[test]
fn a_missing_file_is_named() {
    let error = Reader::open(Path::new("/nowhere/t.csv"), None).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/t.csv: cannot be opened: "), "{error}");
}

/// A sample of each format of text, with the same two requests.
const SAMPLES: [(&str, &str); 11] = [
    ("weir", "time_ns,op,dev,offset,size,resp_ns\n0,R,0,4096,512,\n1000,W,0,8192,1024,\n"),
    ("msr", "10,h,0,Read,4096,512,0\n20,h,0,Write,8192,1024,0\n"),
    ("spc", "0,8,512,r,1.000000\n0,16,1024,W,1.000001,x\n"),
    (
        "blkparse",
        "  0,0 5 1 0.000000000 1 Q R 8 + 1 [a]\n  0,0 5 1 0.000000000 1 D R 8 + 1 [a]\n\
         0,0 5 2 0.000001000 1 D WS 16 + 2 [a]\n 0,0 5 3 0.1 1 m N cfq\nCPU5 (sda):\n Reads: 1\n",
    ),
    ("iolog2", "fio version 2 iolog\na add\na open\na read 4096 512\na sync\na write 8192 1024\n"),
    ("iolog3", "fio version 3 iolog\n0 a add\n5 a read 4096 512\n6 a write 8192 1024\n7 a close\n"),
    ("alibaba", "device_id,opcode,offset,length,timestamp\n0,R,4096,512,5\n0,W,8192,1024,6\n"),
    ("tencent", "1538323200,8,1,0,0\n1538323200,16,2,1,0\n"),
    ("systor17", "1.000000,0.1,R,0,4096,512\n1.000001,,W,0,8192,1024\n1.1,0.1,,0,0,0\n"),
    (
        "blkreplay",
        "a licence\n\n 1.0 ; 8 ; 1 ; R ; 0.0 ; 0.0\n 1.000001 ; 16 ; 2 ; W ; 0 ; 0\n 2.0 ; 0 ; 1 ; RA ; 0 ; 0\n",
    ),
    ("mqsim", "5 0 8 1 1\n1005 0 16 2 0\n"),
];

/// What the samples say: a read of 512 bytes at 4096, and a write of 1024 at 8192.
fn requests(bytes: &[u8], name: &str) -> Vec<(Op, u32, u64, u64)> {
    let mut reader = reader(bytes, None).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(reader.format().as_str(), name);
    let mut requests = Vec::new();
    while let Some(record) = reader.read().unwrap() {
        let extent = record.extent;
        requests.push((record.op, record.device, extent.offset, extent.length));
    }
    requests
}

const EXPECTED: [(Op, u32, u64, u64); 2] =
    [(Op::Read, 0, 4_096, 512), (Op::Write, 0, 8_192, 1_024)];

/// Each format is found by its content and says the same; so does one with a byte order mark, CRLF,
/// blank lines and notices.
#[test]
fn each_format_is_found_and_read() {
    for (name, text) in SAMPLES {
        assert_eq!(requests(text.as_bytes(), name), EXPECTED, "{name}");
        let odd = format!("\u{feff}# a notice\n\n{text}\n\n").replace('\n', "\r\n");
        assert_eq!(requests(odd.as_bytes(), name), EXPECTED, "{name}");
    }
    let disksim = b"5.5 0 8 1 1\n5.501 0 16 2 0\n";
    assert_eq!(requests(disksim, "disksim"), EXPECTED);
    for (name, bytes) in binaries() {
        assert_eq!(requests(&bytes, name), EXPECTED, "{name}");
    }
}

/// Samples of the binary formats: the two requests, and an event of another kind.
fn binaries() -> Vec<(&'static str, Vec<u8>)> {
    let mut samples = vec![("vscsi1", Vec::new()), ("vscsi2", Vec::new())];
    for (command, bytes, block, time) in
        [(0x28_u16, 512_u32, 8_u64, 5_u64), (0x2a, 1_024, 16, 6), (0x35, 0, 0, 7)]
    {
        let first = &mut samples[0].1;
        first.extend([[0; 4], bytes.to_le_bytes(), [1, 0, 0, 0]].concat());
        first.extend([command.to_le_bytes(), 0x0100_u16.to_le_bytes()].concat());
        first.extend([block.to_le_bytes(), time.to_le_bytes()].concat());
        let second = &mut samples[1].1;
        second.extend([command.to_le_bytes(), 0x0200_u16.to_le_bytes()].concat());
        second.extend([[0; 4], bytes.to_le_bytes(), [1, 0, 0, 0]].concat());
        second.extend([block.to_le_bytes(), time.to_le_bytes(), [9, 0, 0, 0, 0, 0, 0, 0]].concat());
    }
    let events = [
        (5_u64, 8_u64, 512_u32, 0x0001_0007_u32),
        (6, 16, 1_024, 0x0002_0007),
        (7, 8, 512, 0x0001_0008),
    ];
    for big in [false, true] {
        let mut file = Vec::new();
        let mut put = |value: u64, bytes: usize| {
            let little = value.to_le_bytes();
            let mut value = little[..bytes].to_vec();
            if big {
                value.reverse();
            }
            file.extend(value);
        };
        for (time, sector, bytes, action) in events {
            for (value, length) in [(0x6561_7407, 4), (1, 4), (time, 8), (sector, 8)] {
                put(value, length);
            }
            for value in [bytes.into(), action.into(), 1, 0, 0] {
                put(value, 4);
            }
            put(0, 2);
            put(3, 2);
            put(0, 3);
        }
        samples.push(("blktrace", file));
    }
    samples
}

/// The response of a request is found in its completion, which is a record that follows.
#[test]
fn completions_give_responses() {
    let (_, bytes) = binaries().pop().unwrap();
    let records = read_all(&bytes).unwrap();
    assert_eq!(records[0].response, Some(Duration::from_nanos(2)));
    assert_eq!(records[1].response, None);
}

/// Whatever is done to a file, its reader ends with records or an error, and never panics.
#[test]
fn damaged_files_are_errors() {
    let mut samples: Vec<Vec<u8>> =
        SAMPLES.iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
    samples.extend(binaries().into_iter().map(|(_, bytes)| bytes));
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = weir_flow::rng::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (state % below.max(1) as u64) as usize
    };
    for sample in &samples {
        for format in Format::all().map(Some).chain([None]) {
            for _ in 0..40 {
                let mut bytes = sample.clone();
                for _ in 0..draw(4) {
                    let at = draw(bytes.len());
                    bytes[at] = match draw(3) {
                        0 => draw(256) as u8,
                        1 => b'9',
                        _ => b",; \n.-#\0"[draw(8)],
                    };
                }
                bytes.truncate(bytes.len() - draw(bytes.len()) / (1 + draw(8)));
                if let Ok(mut reader) = reader(&bytes, format) {
                    while let Ok(Some(_)) = reader.read() {}
                }
            }
        }
    }
}

/// Many requests of `MQSim`, `step` of its unit apart: reads and writes of three devices.
fn steady(step: u64, sectors: u64) -> Vec<u8> {
    let mut text = String::new();
    for at in 0..1_000 {
        writeln!(text, "{} {} {} {sectors} {}", at * step, at % 3, at * 8, at % 2).unwrap();
    }
    text.into_bytes()
}

/// A unit that makes no usual rate is refused with those that do, unless it is named; so are bytes that
/// would be sectors.
#[test]
fn wrong_units_are_named() {
    assert_eq!(read_all(&steady(2_361_000, 8)).unwrap().len(), 1_000);
    let error = reader(&steady(2_361, 8), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "t:1:1: the times of the first 1000 requests would be unusual as ns: 0.002 s, 423973.3 \
         requests/s; as us: 2.359 s, 424.0 requests/s; as ms: 2358.639 s, 0.4 requests/s; say \
         which: --time-unit us"
    );
    let options = Options { time_unit: Some(TimeUnit::Microseconds), ..Options::default() };
    let source = Box::new(Cursor::new(steady(2_361, 8)));
    let mut reader = Reader::new(Path::new("t"), source, options).unwrap();
    reader.read().unwrap();
    assert_eq!(reader.read().unwrap().unwrap().time, Duration::from_nanos(2_361_000));
    let error = self::reader(&steady(2_361_000, 512), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "t:1: of the first 1000 requests, all sizes are multiples of 512 and would be sectors; say \
         which they are: --address sectors,bytes (offset, size), or sectors,sectors as the format \
         has it"
    );
}

/// A trace that is written and read again is the same, in each format that holds all of it.
#[test]
fn a_conversion_can_be_read() {
    let all = read_all(&steady(2_361_000, 8)).unwrap();
    for format in Format::all().filter(|format| format.writable()) {
        let mut out = Vec::new();
        let reader = reader(&steady(2_361_000, 8), None).unwrap();
        let done = convert(reader, format, false, &mut out, |_| ()).unwrap();
        assert_eq!(done, Conversion { requests: 1_000, ..Conversion::default() }, "{format}");
        let again = read_all(&out).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(again, all, "{format}");
    }
}

/// What the new format cannot hold is refused, and left out where that is asked for.
#[test]
fn a_conversion_names_what_it_loses() {
    let text = "time_ns,op,dev,offset,size,resp_ns\n0,R,sda,512,512,\n1,R,sda,512,512,9\n";
    let to = |name: &str, lossy: bool| {
        let reader = reader(text.as_bytes(), None).unwrap();
        let mut out = Vec::new();
        let done = convert(reader, Format::named(name).unwrap(), lossy, &mut out, |_| ());
        (done.map_err(|error| error.to_string()), String::from_utf8(out).unwrap())
    };
    let (done, out) = to("weir", false);
    assert_eq!((done.unwrap().requests, out.as_str()), (2, text));
    let refused = "t:3: the time is finer than the unit of iolog3; --lossy rounds it down";
    assert_eq!(to("iolog3", false).0.unwrap_err(), refused);
    let (done, out) = to("iolog3", true);
    let expected =
        Conversion { requests: 2, times_rounded: 1, responses_lost: 1, ..Conversion::default() };
    assert_eq!(done.unwrap(), expected);
    assert_eq!(out, "fio version 3 iolog\n0 sda read 512 512\n0 sda read 512 512\n");
    let refused = "t:2: mqsim cannot hold the device `sda`; --to weir can";
    assert_eq!(to("mqsim", true).0.unwrap_err(), refused);
}

/// Every notice of a trace stays with it, wherever it is; a format that holds none says how many it loses.
#[test]
fn a_conversion_keeps_every_notice() {
    let mut text = "# a licence\n".repeat(200);
    text += "time_ns,op,dev,offset,size,resp_ns\n5,R,0,0,512,\n# between\n6,R,0,512,512,\n# last\n";
    for (to, lost) in [("weir", 0), ("spc", 202)] {
        let mut out = Vec::new();
        let reader = reader(text.as_bytes(), None).unwrap();
        let to = Format::named(to).unwrap();
        let done = convert(reader, to, false, &mut out, |_| ()).unwrap();
        assert_eq!((done.requests, done.notices_lost, done.loses()), (2, lost, lost > 0));
        assert!(lost > 0 || out == text.as_bytes(), "{}", String::from_utf8_lossy(&out));
    }
}

/// An option that the format of the file does not use is refused, with both named.
#[test]
fn options_without_a_use_are_refused() {
    let time = Options { time_unit: Some(TimeUnit::Seconds), ..Options::default() };
    let bytes = (AddressUnit::Bytes, AddressUnit::Bytes);
    let address = Options { address: Some(bytes), ..Options::default() };
    let wait = Options { wait: Some(Wait::Relative), ..Options::default() };
    let event = Options { event: Some(Event::Issued), ..Options::default() };
    let table = [
        ("weir", time, "--time-unit: its times are always in ns"),
        ("weir", address, "--address: its offsets and sizes are always in bytes"),
        ("iolog2", time, "--time-unit: its times come from `wait`, whose meaning --wait says"),
        ("iolog3", wait, "--wait: only iolog2 has lines with `wait`"),
        ("mqsim", event, "--event: only blkparse and blktrace have events of the block layer"),
    ];
    let sample = |name: &str| SAMPLES.iter().find(|(format, _)| *format == name).unwrap().1;
    for (name, options, expected) in table {
        let source = Box::new(Cursor::new(sample(name)));
        let error = Reader::new(Path::new("t"), source, options).unwrap_err().to_string();
        let start = format!("t: the file is of the format {name}, which does not use ");
        let option = expected.split(':').next().unwrap();
        assert_eq!(error, format!("{start}{expected}; leave {option} out"));
    }
    for (name, options) in [
        ("mqsim", time),
        ("spc", address),
        ("iolog2", address),
        ("iolog2", wait),
        ("blkparse", event),
    ] {
        let source = Box::new(Cursor::new(sample(name)));
        Reader::new(Path::new("t"), source, options).unwrap();
    }
    let (_, blktrace) = binaries().pop().unwrap();
    Reader::new(Path::new("t"), Box::new(Cursor::new(blktrace)), event).unwrap();
}

/// A compression that is not read is named with the command that undoes it.
#[test]
fn other_compressions_are_named() {
    let error = reader(b"BZh91AY", None).unwrap_err().to_string();
    assert!(error.contains("bzip2") && error.contains("bzip2 -dc FILE > PLAIN"), "{error}");
}
