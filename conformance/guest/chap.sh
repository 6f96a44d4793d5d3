# CHAP with open-iscsi, one-way and mutual, with MD5 and with SHA-256; wrong secrets.
credentials() { # credentials NAME SECRET MUTUAL-NAME MUTUAL-SECRET
  setting chap node.session.auth.authmethod CHAP
  setting chap node.session.auth.username "$1"
  setting chap node.session.auth.password "$2"
  setting chap node.session.auth.username_in "${3:-}"
  setting chap node.session.auth.password_in "${4:-}"
}
works() {
  login chap
  sg_turs "$(device chap)" || sg_turs "$(device chap)"
  logout chap
  echo "ok   $1"
}
node chap
must_fail '24 - iSCSI login failed due to authorization failure' login chap
says 'peer=.*initiator=.*:guest.*AuthenticationFailure.*left out' control log 'login refused'
for algorithm in MD5 SHA256; do
  setting chap node.session.auth.chap_algs $algorithm
  credentials alice secretsecret12
  works "$algorithm, one-way"
  credentials alice secretsecret12 weir mutualmutual12
  works "$algorithm, mutual"
  credentials alice wrongwrongwrong
  must_fail '24 - iSCSI login failed due to authorization failure' login chap
  says 'peer=.*initiator=.*:guest.*AuthenticationFailure.*wrong response' control log 'login refused'
  # The gateway authenticates with another secret: open-iscsi must refuse it.
  credentials alice secretsecret12 weir mutualmutualXX
  must_fail 'non-retryable iSCSI login failure' login chap
done
