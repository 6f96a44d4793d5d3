//! Records the inputs of the pipeline, so that the simulator can check its actions.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing::error;
use weir_flow::clock::Instant;
use weir_flow::digest::Digest;
use weir_flow::pipeline::{Action, Config, Input};
use weir_flow::recording::{Encoder, Entry};
use weir_flow::stage::{Stage, Wake, World};

/// A recording that is being written.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    scratch: Vec<u8>,
    encoder: Encoder,
    digest: Digest,
}

impl Recorder {
    /// Starts a recording; an existing file is replaced.
    pub(crate) fn create(path: &Path, config: &Config) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = BufWriter::new(options.open(path)?);
        let mut scratch = Vec::new();
        let encoder = Encoder::begin(&mut scratch, config);
        file.write_all(&scratch)?;
        file.flush()?;
        Ok(Self {
            path: path.to_path_buf(),
            file: Some(file),
            scratch,
            encoder,
            digest: Digest::default(),
        })
    }

    fn entry(&mut self, entry: &Entry) {
        let Some(file) = &mut self.file else { return };
        self.scratch.clear();
        self.encoder.entry(&mut self.scratch, entry);
        if let Err(problem) = file.write_all(&self.scratch) {
            self.give_up(&problem);
        }
    }

    /// Ends the recording and continues to serve: a recording is worth less than the I/O that it records.
    fn give_up(&mut self, problem: &io::Error) {
        error!(file = %self.path.display(), %problem, "the recording has stopped and is incomplete");
        self.file = None;
    }

    /// Writes the end, with the digest of all actions.
    pub(crate) fn finish(mut self) {
        self.entry(&Entry::End(self.digest));
        let problem = self.file.as_mut().and_then(|file| file.flush().err());
        if let Some(problem) = problem {
            self.give_up(&problem);
        }
    }
}

/// A world that is being recorded.
pub(crate) struct Recorded<'a, W> {
    pub(crate) world: &'a mut W,
    pub(crate) recorder: &'a mut Recorder,
}

impl<S, W> World<S> for Recorded<'_, W>
where
    S: Stage<Input = Input, Output = Action>,
    W: World<S>,
{
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        let wake = self.world.wait(deadline);
        match &wake {
            Wake::Input(at, input) => self.recorder.entry(&Entry::Input(*at, input.clone())),
            &Wake::Deadline(at) => self.recorder.entry(&Entry::Deadline(at)),
            Wake::End => {}
        }
        wake
    }

    fn perform(&mut self, now: Instant, action: Action) {
        self.recorder.digest.action(now, &action);
        self.world.perform(now, action);
    }
}
