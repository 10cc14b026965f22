complete --keep-order --exclusive --command ostler --arguments "(OSTLER_COMPLETE=fish ostler -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
