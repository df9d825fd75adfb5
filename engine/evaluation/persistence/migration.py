def migrated(document):
    raise NotImplementedError
