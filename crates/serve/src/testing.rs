//! A configuration for tests.

use crate::config::{
    Authentication, Candidate, Config, Given, Initiators, Iscsi, Layout, Nbd, Nvme, Reader,
    Rejected, Target as TargetConfig, Tenant, Volume as VolumeConfig, Where,
};
use std::path::Path;
use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::dispatch::Shares;
use weir_flow::pipeline::{Limits as PipelineLimits, Policies};
use weir_flow::{cache, path};

/// No configuration to read.
pub(crate) struct NoReader;

impl Reader for NoReader {
    fn read(&mut self, _: Option<&Given>) -> Result<Candidate, Rejected> {
        Err(Rejected::Invalid(Vec::new()))
    }

    fn put_into_force(&mut self) {}

    fn file(&self) -> Option<&Path> {
        None
    }
}

/// One tenant, and one target with a volume on these stores.
pub(crate) fn config(stores: Vec<Where>) -> Config {
    Config {
        listen: Vec::new(),
        advertise: Vec::new(),
        accounts: Vec::new(),
        discovery: Authentication::default(),
        nbd: Nbd::default(),
        nvme: Nvme::default(),
        tenants: vec![Tenant { name: String::from("t"), initiators: None }],
        promises: Promises::default(),
        shares: Shares::default(),
        backends: Vec::new(),
        upstreams: Vec::new(),
        volumes: vec![VolumeConfig {
            name: String::from("v"),
            identity: None,
            tenant: 0,
            stores,
            layout: Layout::Concat,
            log: None,
            cap: Cap::default(),
            block_size: 512,
            physical_block_size: 4096,
            read_only: false,
            thin: true,
            initiators: Initiators::default(),
            removable: false,
            sanitize: false,
            atomic: false,
            movable: false,
            state: None,
        }],
        targets: vec![TargetConfig {
            name: String::from("iqn.t"),
            alias: None,
            initiators: Initiators::default(),
            authentication: Authentication::default(),
            redirect: None,
            luns: vec![(0, 0)],
        }],
        policies: Policies::default(),
        limits: PipelineLimits::default(),
        paths: path::Settings::default(),
        cache: cache::Settings::default(),
        iscsi: Iscsi::default(),
        links: Vec::new(),
        control: None,
        http: None,
        isns: None,
        savings: None,
        take_over: Vec::new(),
        record: None,
        recorder: crate::config::Recorder::default(),
        log_format: crate::config::LogFormat::default(),
        stop: crate::config::Stop { timeout: Duration::ZERO },
    }
}
